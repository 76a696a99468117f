import { createSpotlight, Spotlight } from '@mantine/spotlight';
import '@mantine/spotlight/styles.layer.css';
import { useDebouncedValue } from '@mantine/hooks';
import { useQuery } from '@tanstack/react-query';
import { useNavigate, useParams } from '@tanstack/react-router';
import { useEffect, useState } from 'react';
import { plansQuery, rulesQuery } from '~/api/queries';
import type { Rule } from '~/api/types';
import { knownUsersQuery } from '~/api/user';
import {
  IconClock,
  IconKey,
  IconMail,
  IconPlans,
  IconRules,
  IconSearch,
  IconShield,
  IconSignIn,
  IconTenants,
  IconUser,
} from '~/components/icons';
import { ruleDetail, ruleEffect } from '~/domain/rule';
import { useRole, useSession } from '~/session';
import styles from './CommandPalette.module.css';
import { settingsIcon as IconSettings, settingsSections, tenantScreens } from './navigation';
import { useTenantChoices } from './useTenantChoices';

const [store, spotlight] = createSpotlight();
const most = 6;

interface Entry {
  id: string;
  label: string;
  description?: string;
  icon: React.ReactNode;
  go: () => void;
  /** Shown only for a search of its verb, because there is one of each rule. */
  asked?: boolean;
}

interface Props {
  opened: boolean;
  onClose: () => void;
}

/** The command palette (Ctrl-K): finds pages, tenants, rules and users. */
export default function CommandPalette({ opened, onClose }: Props) {
  const [query, setQuery] = useState('');
  useEffect(() => (opened ? spotlight.open() : spotlight.close()), [opened]);
  const groups = useGroups(query);
  return (
    <Spotlight.Root
      title="Search pages, tenants, rules and users"
      store={store}
      query={query}
      onQueryChange={setQuery}
      onSpotlightClose={onClose}
      clearQueryOnClose
      shortcut={null}
      scrollable
      maxHeight={420}
      radius="lg"
      classNames={styles}
      overlayProps={{ backgroundOpacity: 0.35, blur: 0 }}
      transitionProps={{ duration: 100 }}
    >
      <Spotlight.Search
        placeholder="Search pages, tenants, rules, users …"
        aria-label="Search"
        leftSection={<IconSearch size={16} aria-hidden />}
      />
      <Spotlight.ActionsList>
        {groups.map(({ label, entries }) => (
          <Spotlight.ActionsGroup key={label} label={label}>
            {entries.map((entry) => (
              <Spotlight.Action
                key={entry.id}
                dimmedSections={false}
                label={entry.label}
                rightSection={<span className={styles.description}>{entry.description}</span>}
                leftSection={entry.icon}
                onClick={entry.go}
              />
            ))}
          </Spotlight.ActionsGroup>
        ))}
        {groups.length === 0 && <Spotlight.Empty>No results</Spotlight.Empty>}
      </Spotlight.ActionsList>
    </Spotlight.Root>
  );
}

/** The words that say what is searched for, as in "user 42", with the group that has it. */
const kinds: Record<string, string> = {
  user: 'Users',
  rule: 'Rules',
  plan: 'Plans',
  tenant: 'Tenants',
  ip: 'Addresses',
  address: 'Addresses',
};

/** Takes a leading "user", "rule", "plan", "tenant" or "ip" off a query. */
function splitKind(query: string): { kind: string | undefined; rest: string } {
  const [, word = '', rest = ''] = /^\s*(\w+)\s+(\S.*)$/.exec(query) ?? [];
  const kind = kinds[word.toLowerCase()];
  return kind ? { kind, rest } : { kind: undefined, rest: query };
}

function useGroups(query: string): { label: string; entries: Entry[] }[] {
  const { tenant } = useParams({ strict: false });
  const { kind, rest } = splitKind(query);
  const groups = [
    { label: 'Actions', entries: useActions(tenant) },
    { label: 'Pages', entries: useScreens(tenant) },
    { label: 'Rules', entries: useRules(tenant) },
    { label: 'Plans', entries: usePlans(tenant) },
    { label: 'Tenants', entries: useTenants(rest) },
  ].map(({ label, entries }) => ({
    label,
    entries: entries
      .filter((entry) => fits(entry, label === kind ? rest : query) && (!entry.asked || /\bsched/i.test(query)))
      .slice(0, query ? 20 : most),
  }));
  const addresses = { label: 'Addresses', entries: useAddress(tenant, rest) };
  const users = useUsers(tenant, kind === undefined || kind === 'Users' ? rest : '');
  return [
    addresses,
    ...groups,
    { label: 'Users', entries: users.known },
    // Every id is a user, so one that nobody has seen is offered last, and not for an address.
    { label: 'Other user', entries: kind === 'Users' || addresses.entries.length === 0 ? users.unknown : [] },
  ].filter(
    ({ label, entries }) => entries.length > 0 && (kind === undefined || label === kind || label === 'Other user'),
  );
}

/** What can be done from anywhere. Each opens the place where it is done. */
function useActions(tenant: string | undefined): Entry[] {
  const navigate = useNavigate();
  const { edit } = useRole();
  const { rule: here } = useParams({ strict: false });
  const { data = [] } = useQuery({ ...rulesQuery(tenant ?? ''), enabled: !!tenant });
  if (!tenant || !edit) return [];
  const schedule = (rule: Rule): Entry => ({
    id: `schedule ${rule.rule_id}`,
    label: `Schedule a change of ${rule.key_pattern}`,
    description: `${ruleDetail(rule)} · ${ruleEffect(rule)}`,
    icon: <IconClock size={16} />,
    go: () =>
      navigate({
        to: '/t/$tenant/rules/$rule',
        params: { tenant, rule: String(rule.rule_id) },
        search: { open: 'schedule' },
      }),
  });
  const limits = data.filter(({ action }) => action === 'limit');
  return [
    ...limits.filter(({ rule_id }) => String(rule_id) === here).map(schedule),
    {
      id: 'schedule plans',
      label: 'Schedule a change of plans',
      description: 'Plans',
      icon: <IconClock size={16} />,
      go: () => navigate({ to: '/t/$tenant/plans', params: { tenant }, search: { open: 'schedule' } }),
    },
    {
      id: 'new rule',
      label: 'New rule',
      description: 'Rules',
      icon: <IconRules size={16} />,
      go: () => navigate({ to: '/t/$tenant/rules/new', params: { tenant } }),
    },
    ...limits.filter(({ rule_id }) => String(rule_id) !== here).map((rule) => ({ ...schedule(rule), asked: true })),
  ];
}

/** Whether every word of the query is in the entry. */
function fits(entry: Entry, query: string): boolean {
  const text = `${entry.label} ${entry.description ?? ''}`.toLowerCase();
  return query
    .toLowerCase()
    .split(/\s+/)
    .every((word) => text.includes(word));
}

function useScreens(tenant: string | undefined): Entry[] {
  const navigate = useNavigate();
  const { account } = useSession();
  const entries: Entry[] = [];
  if (tenant) {
    for (const { to, label, icon: Icon } of tenantScreens) {
      entries.push({
        id: to,
        label,
        icon: <Icon size={16} />,
        go: () => navigate({ to, params: { tenant } }),
      });
    }
    for (const { section, label } of settingsSections) {
      const go = () => navigate({ to: '/t/$tenant/settings/$section', params: { tenant, section } });
      entries.push({ id: section, label, description: 'Settings', icon: <IconSettings size={16} />, go });
    }
  }
  const profile = () => navigate({ to: '/profile' });
  entries.push({ id: 'profile', label: 'Profile', icon: <IconUser size={16} />, go: profile });
  if (account.platform_admin) {
    const tenants = () => navigate({ to: '/platform/tenants' });
    const accounts = () => navigate({ to: '/platform/accounts' });
    const keys = () => navigate({ to: '/platform/service-keys' });
    entries.push({ id: 'tenants', label: 'All tenants', icon: <IconTenants size={16} />, go: tenants });
    const mail = () => navigate({ to: '/platform/mail' });
    entries.push({ id: 'mail', label: 'Mail', icon: <IconMail size={16} />, go: mail });
    const jobs = () => navigate({ to: '/platform/jobs' });
    entries.push({ id: 'jobs', label: 'Jobs', icon: <IconClock size={16} />, go: jobs });
    const security = () => navigate({ to: '/platform/security-log' });
    entries.push({ id: 'security-log', label: 'Security log', icon: <IconShield size={16} />, go: security });
    const signIn = () => navigate({ to: '/platform/sign-in' });
    entries.push({ id: 'sign-in', label: 'Sign-in', icon: <IconSignIn size={16} />, go: signIn });
    entries.push({ id: 'accounts', label: 'Accounts', icon: <IconUser size={16} />, go: accounts });
    entries.push({ id: 'service-keys', label: 'Service keys', icon: <IconKey size={16} />, go: keys });
  }
  return entries;
}

function useTenants(query: string): Entry[] {
  const navigate = useNavigate();
  return useTenantChoices(query).map(({ slug, name }) => ({
    id: `tenant ${slug}`,
    label: name,
    description: slug,
    icon: <IconTenants size={16} />,
    go: () => navigate({ to: '/t/$tenant/overview', params: { tenant: slug } }),
  }));
}

/** Plans, by way of their rules. */
function usePlans(tenant: string | undefined): Entry[] {
  const navigate = useNavigate();
  const { data = [] } = useQuery({ ...plansQuery(tenant ?? ''), enabled: !!tenant });
  return data.map(({ name }) => ({
    id: `plan ${name}`,
    label: `Plan ${name}`,
    description: 'Rules of this plan',
    icon: <IconPlans size={16} />,
    go: () => navigate({ to: '/t/$tenant/rules', params: { tenant: tenant ?? '' }, search: { plan: name } }),
  }));
}

function useRules(tenant: string | undefined): Entry[] {
  const navigate = useNavigate();
  const { data = [] } = useQuery({ ...rulesQuery(tenant ?? ''), enabled: !!tenant });
  return data.map((rule) => ({
    id: `rule ${rule.rule_id}`,
    label: rule.key_pattern,
    description: `${ruleDetail(rule)} · ${ruleEffect(rule)}`,
    icon: <IconRules size={16} />,
    go: () =>
      navigate({
        to: '/t/$tenant/rules/$rule',
        params: { tenant: tenant ?? '', rule: String(rule.rule_id) },
      }),
  }));
}

/** The denials of an address or network that is typed, from where it can be blocked. */
function useAddress(tenant: string | undefined, query: string): Entry[] {
  const navigate = useNavigate();
  const ip = query.trim();
  if (!tenant || !looksLikeAddress(ip)) return [];
  return [
    {
      id: `address ${ip}`,
      label: `Address ${ip}`,
      description: 'Violations, block or let through',
      icon: <IconShield size={16} />,
      go: () => navigate({ to: '/t/$tenant/violations', params: { tenant }, search: { ip } }),
    },
  ];
}

/** "203.0.113.9", "2001:db8::/48": enough to offer it; the server judges it. */
function looksLikeAddress(text: string): boolean {
  return /^(\d{1,3}(\.\d{1,3}){3}|[\da-f]*:[\da-f]*:[\da-f:.]*)(\/\d{1,3})?$/i.test(text);
}

/** Users of whom something is known whose id starts with the text, and the id itself if nothing is known of it. */
function useUsers(tenant: string | undefined, text: string): { known: Entry[]; unknown: Entry[] } {
  const navigate = useNavigate();
  const id = text.trim();
  const [prefix] = useDebouncedValue(id, 150);
  const { data, isError, isPlaceholderData } = useQuery({
    ...knownUsersQuery(tenant ?? '', prefix),
    enabled: !!tenant && prefix !== '',
  });
  if (!tenant || id === '') return { known: [], unknown: [] };
  const entry = (user: string, label: string, description?: string): Entry => ({
    id: `user ${user}`,
    label,
    description,
    icon: <IconUser size={16} />,
    go: () => navigate({ to: '/t/$tenant/users/$user', params: { tenant, user } }),
  });
  const found = (data ?? []).filter(({ user_id }) => user_id.startsWith(id));
  const isAsked = prefix === id && (isError || (!!data && !isPlaceholderData));
  const isKnown = found.some(({ user_id }) => user_id === id);
  return {
    known: found.map(({ user_id, plan }) => entry(user_id, `User ${user_id}`, plan ? `on ${plan}` : undefined)),
    unknown: isKnown || !isAsked ? [] : [entry(id, `Open user ${id}`, 'Not seen recently')],
  };
}
