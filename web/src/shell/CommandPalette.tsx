import { Modal } from '@mantine/core';
import { useDebouncedValue } from '@mantine/hooks';
import type { Icon } from '@tabler/icons-react';
import { useQuery } from '@tanstack/react-query';
import { type LinkProps, useNavigate, useParams } from '@tanstack/react-router';
import { useEffect, useId, useMemo, useRef, useState } from 'react';
import { plansQuery, rulesQuery } from '~/api/queries';
import { topQuery } from '~/api/traffic';
import type { Rule } from '~/api/types';
import { knownUsersQuery } from '~/api/user';
import {
  IconBan,
  IconClock,
  IconHistory,
  IconKey,
  IconMail,
  IconPlans,
  IconPlus,
  IconRoute,
  IconRules,
  IconSearch,
  IconSettings,
  IconShield,
  IconTenants,
  IconUndo,
  IconUser,
} from '~/components/icons';
import { useFocusBack } from '~/components/useFocusBack';
import { hasWords } from '~/domain/pattern';
import { namedSpan } from '~/domain/range';
import { ruleDetail, ruleEffect, ruleTitle } from '~/domain/rule';
import { useRole, useSession } from '~/session';
import styles from './CommandPalette.module.css';
import { platformScreens, settingsSections, tenantScreens } from './navigation';
import { useShownTenant } from './useShownTenant';
import { useTenantChoices } from './useTenantChoices';

const most = 6;

interface Entry {
  id: string;
  label: string;
  description?: string;
  words?: string;
  icon: Icon;
  link: LinkProps;
}

interface Props {
  opened: boolean;
  query: string;
  onQuery: (query: string) => void;
  onClose: () => void;
}

/** A result is always selected, and later results do not move the selection. */
export default function CommandPalette({ opened, query, onQuery, onClose }: Props) {
  const navigate = useNavigate();
  const groups = useGroups(query);
  const entries = groups.flatMap((group) => group.entries);
  const [choice, setChoice] = useState({ query, id: '' });
  const at = Math.max(
    0,
    entries.findIndex(({ id }) => choice.query === query && id === choice.id),
  );
  const selected = entries[at];
  const list = useId();
  const optionId = (entry: Entry) => `${list} ${entry.id}`.replaceAll(' ', '-');
  // Enter that comes before the results opens the first.
  const entered = useRef(false);

  useFocusBack(opened);
  useEffect(() => {
    if (!opened || !selected) return;
    if (entered.current) go(selected);
    else if (choice.query !== query || choice.id !== selected.id) setChoice({ query, id: selected.id });
  });

  function go(entry: Entry) {
    entered.current = false;
    onClose();
    navigate(entry.link as Parameters<typeof navigate>[0]);
  }

  function move(step: number) {
    const next = entries[(at + step + entries.length) % entries.length];
    if (!next) return;
    setChoice({ query, id: next.id });
    document.getElementById(optionId(next))?.scrollIntoView({ block: 'nearest' });
  }

  function press(event: React.KeyboardEvent) {
    if (event.nativeEvent.isComposing) return;
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) move(step);
    else if (event.key !== 'Enter') return;
    else if (selected) go(selected);
    else entered.current = query.trim() !== '';
    event.preventDefault();
  }

  return (
    <Modal
      opened={opened}
      onClose={onClose}
      title="Search"
      withCloseButton={false}
      centered={false}
      yOffset="12vh"
      size={600}
      padding={0}
      radius="lg"
      overlayProps={{ backgroundOpacity: 0.35 }}
      transitionProps={{ duration: 0 }}
      classNames={{ header: styles.header }}
    >
      <div className={styles.search}>
        <IconSearch size={16} aria-hidden />
        <input
          data-autofocus
          role="combobox"
          aria-label="Search"
          aria-expanded
          aria-controls={list}
          aria-activedescendant={selected && optionId(selected)}
          autoComplete="off"
          spellCheck={false}
          placeholder="Search pages, actions, rules, users, endpoints …"
          value={query}
          onChange={(event) => {
            entered.current = false;
            onQuery(event.currentTarget.value);
          }}
          onKeyDown={press}
        />
      </div>
      <div role="listbox" id={list} aria-label="Results" className={styles.list}>
        {groups.map(({ label, entries }) => (
          // biome-ignore lint/a11y/useSemanticElements: options of a listbox are grouped by role
          <div key={label} role="group" aria-label={label}>
            <div className={styles.label} aria-hidden>
              {label}
            </div>
            {entries.map((entry) => (
              <button
                key={entry.id}
                id={optionId(entry)}
                type="button"
                role="option"
                tabIndex={-1}
                aria-selected={entry === selected}
                className={styles.option}
                onClick={() => go(entry)}
              >
                <entry.icon size={16} />
                <span>{entry.label}</span>
                <span className={styles.description}>{entry.description}</span>
              </button>
            ))}
          </div>
        ))}
      </div>
      {groups.length === 0 && <p className={styles.empty}>No results</p>}
    </Modal>
  );
}

const kinds: Record<string, string> = {
  user: 'Users',
  rule: 'Rules',
  plan: 'Plans',
  tenant: 'Tenants',
  ip: 'Addresses',
  address: 'Addresses',
  block: 'Addresses',
  endpoint: 'Endpoints',
};

function splitKind(query: string): { kind: string | undefined; rest: string } {
  const [, word = '', rest = ''] = /^\s*(\w+)\s+(\S.*)$/.exec(query) ?? [];
  const kind = kinds[word.toLowerCase()];
  return kind ? { kind, rest } : { kind: undefined, rest: query };
}

function useGroups(query: string): { label: string; entries: Entry[] }[] {
  const tenant = useShownTenant();
  const { kind, rest } = splitKind(query);
  const groups = [
    { label: 'Pages', entries: useScreens(tenant) },
    { label: 'Actions', entries: useActions(tenant, query) },
    { label: 'Rules', entries: useRules(tenant) },
    { label: 'Plans', entries: usePlans(tenant) },
    { label: 'Tenants', entries: useTenants(rest) },
    { label: 'Endpoints', entries: useEndpoints(tenant, rest) },
  ]
    .map(({ label, entries }) => ranked(label, entries, label === kind ? rest : query))
    .toSorted((a, b) => a.rank - b.rank);
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

function ranked(label: string, entries: Entry[], query: string) {
  const asked = query.trim().toLowerCase();
  if (asked === '') return { label, entries: entries.slice(0, most), rank: 0 };
  const found = entries
    .filter(({ label, description, words }) => hasWords(asked, label, description, words))
    .map((entry) => ({ entry, rank: rankOf(entry.label.toLowerCase(), asked) }))
    .toSorted((a, b) => a.rank - b.rank);
  return { label, entries: found.slice(0, 20).map(({ entry }) => entry), rank: found[0]?.rank ?? 9 };
}

function rankOf(label: string, asked: string): number {
  if (label === asked) return 0;
  if (label.startsWith(asked)) return 1;
  return label.includes(` ${asked}`) ? 2 : 3;
}

function useActions(tenant: string | undefined, query: string): Entry[] {
  const { edit, own } = useRole();
  const { rule: here } = useParams({ strict: false });
  const { data = [] } = useQuery({ ...rulesQuery(tenant ?? ''), enabled: !!tenant });
  if (!tenant || !edit) return [];
  const act = (label: string, description: string | undefined, icon: Icon, link: LinkProps): Entry => {
    return { id: label, label, description, icon, link };
  };
  const to = (screen: string, search?: LinkProps['search']): LinkProps => {
    return { to: `/t/$tenant/${screen}`, params: { tenant }, search } as LinkProps;
  };
  const schedule = (rule: Rule): Entry => ({
    id: `schedule ${rule.rule_id}`,
    label: `Schedule a change of ${ruleTitle(rule)}`,
    description: `${ruleDetail(rule)} · ${ruleEffect(rule)}`,
    words: rule.key_pattern,
    icon: IconClock,
    link: { to: '/t/$tenant/rules/$rule', params: { tenant, rule: rule.rule_id }, search: { open: 'schedule' } },
  });
  // Each rule has a schedule, so they are offered only on request.
  const isAsked = /\bsched/i.test(query);
  const limits = data.filter(({ action, rule_id }) => action === 'limit' && (isAsked || rule_id === here));
  return [
    act('New rule', undefined, IconPlus, to('rules/new')),
    act('Block an address or network', 'Violations', IconBan, to('violations', { group: 'network' })),
    act('Raise the limit of a user', 'Users', IconUser, to('users')),
    act('Schedule a change of plans', 'Plans', IconClock, to('plans', { open: 'schedule' })),
    act('Replay another limit', 'Replays', IconHistory, to('replays', { open: 'new' })),
    act('Undo a change', 'Audit log', IconUndo, settings(tenant, 'audit')),
    ...(own
      ? [
          act('Create an API key', undefined, IconKey, settings(tenant, 'keys')),
          act('Invite a member', undefined, IconMail, settings(tenant, 'members')),
        ]
      : []),
    ...limits.map(schedule),
  ];
}

function settings(tenant: string, section: string): LinkProps {
  return { to: '/t/$tenant/settings/$section', params: { tenant, section } };
}

function useScreens(tenant: string | undefined): Entry[] {
  const { account } = useSession();
  const ofTenant = tenant
    ? [
        ...tenantScreens.map(({ to, label, icon }) => ({ id: to, label, icon, link: { to, params: { tenant } } })),
        ...settingsSections.map(({ section, label }) => ({
          id: section,
          label,
          description: 'Settings',
          icon: IconSettings,
          link: settings(tenant, section),
        })),
      ]
    : [];
  const ofPlatform = platformScreens.map(({ to, label, icon }) => ({
    id: to,
    label,
    description: 'Platform',
    icon,
    link: { to },
  }));
  return [
    ...ofTenant,
    { id: 'profile', label: 'Profile', icon: IconUser, link: { to: '/profile' } },
    ...(account.platform_admin ? ofPlatform : []),
  ];
}

function useTenants(query: string): Entry[] {
  return useTenantChoices(query).map(({ slug, name }) => ({
    id: `tenant ${slug}`,
    label: name,
    description: slug,
    icon: IconTenants,
    link: { to: '/t/$tenant/overview', params: { tenant: slug } },
  }));
}

function usePlans(tenant: string | undefined): Entry[] {
  const { data = [] } = useQuery({ ...plansQuery(tenant ?? ''), enabled: !!tenant });
  return data.map(({ name }) => ({
    id: `plan ${name}`,
    label: `Plan ${name}`,
    description: 'Rules of this plan',
    icon: IconPlans,
    link: { to: '/t/$tenant/rules', params: { tenant }, search: { plan: name } },
  }));
}

function useRules(tenant = ''): Entry[] {
  const { data } = useQuery({ ...rulesQuery(tenant), enabled: tenant !== '' });
  return useMemo(
    () =>
      (data ?? []).map((rule) => ({
        id: `rule ${rule.rule_id}`,
        label: ruleTitle(rule),
        description: `${rule.plan ?? 'all plans'} · ${ruleEffect(rule)}`,
        words: rule.key_pattern,
        icon: IconRules,
        link: { to: '/t/$tenant/rules/$rule', params: { tenant, rule: rule.rule_id } },
      })),
    [data, tenant],
  );
}

function useEndpoints(tenant: string | undefined, query: string): Entry[] {
  const enabled = !!tenant && query.trim().length > 1;
  const { data } = useQuery({ ...topQuery(tenant ?? '', namedSpan('24h'), 'endpoint', 100), enabled });
  if (!enabled || !data) return [];
  return data.items.map(({ value }) => ({
    id: `endpoint ${value}`,
    label: value,
    description: 'Violations',
    icon: IconRoute,
    link: { to: '/t/$tenant/violations', params: { tenant }, search: { endpoint: value } },
  }));
}

function useAddress(tenant: string | undefined, query: string): Entry[] {
  const ip = query.trim();
  if (!tenant || !looksLikeAddress(ip)) return [];
  return [
    {
      id: `address ${ip}`,
      label: `Address ${ip}`,
      description: 'Violations, block or let through',
      icon: IconShield,
      link: { to: '/t/$tenant/violations', params: { tenant }, search: { ip } },
    },
  ];
}

/** Enough to offer it; the server judges it. */
function looksLikeAddress(text: string): boolean {
  return /^(\d{1,3}(\.\d{1,3}){3}|[\da-f]*:[\da-f]*:[\da-f:.]*)(\/\d{1,3})?$/i.test(text);
}

function useUsers(tenant: string | undefined, text: string): { known: Entry[]; unknown: Entry[] } {
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
    icon: IconUser,
    link: { to: '/t/$tenant/users/$user', params: { tenant, user } },
  });
  const found = (data ?? []).filter(({ user_id }) => user_id.startsWith(id));
  const isAsked = prefix === id && (isError || (!!data && !isPlaceholderData));
  const isKnown = found.some(({ user_id }) => user_id === id);
  return {
    known: found.map(({ user_id, plan }) => entry(user_id, `User ${user_id}`, plan ? `on ${plan}` : undefined)),
    unknown: isKnown || !isAsked ? [] : [entry(id, `Open user ${id}`, 'Not seen recently')],
  };
}
