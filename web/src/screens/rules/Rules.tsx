import { Button, Group } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { useNavigate, useSearch } from '@tanstack/react-router';
import { serverNow } from '~/api/clock';
import { plansQuery, rulesQuery } from '~/api/queries';
import type { Rule, ScheduledChange } from '~/api/types';
import { ChoiceField } from '~/components/ChoiceField';
import { timeColumn } from '~/components/columns';
import { type Column, DataTable } from '~/components/DataTable';
import { FilterField } from '~/components/FilterField';
import { IconPlus, IconRules } from '~/components/icons';
import { LinkButton } from '~/components/LinkButton';
import { Card, Page } from '~/components/Page';
import { Query } from '~/components/Query';
import { sorted } from '~/components/sorted';
import { EmptyState } from '~/components/states';
import { plural } from '~/domain/format';
import { isOn } from '~/domain/group';
import { meterUnit } from '~/domain/meter';
import { isFound, patternInWords, upper } from '~/domain/pattern';
import { type Choice, choicesOf, modeLabels, ruleEffect, ruleName, scopeLabels } from '~/domain/rule';
import { EndingSoon } from '~/features/overrides/EndingSoon';
import { headings } from '~/headings';
import type { RulesSearch } from '~/search';
import { useRole, useTenant } from '~/session';
import { RuleChips, RuleEnds, useChangesInForce } from './RuleState';
import styles from './Rules.module.css';

const columnsOf = (inForce: Map<string, ScheduledChange>): Column<Rule>[] => [
  {
    key: 'pattern',
    header: 'Requests',
    sortable: true,
    render: (rule) => (
      <span className={styles.pattern}>
        <span className={styles.words}>
          {patternInWords(rule.key_pattern)}
          {ruleName(rule) && <span className="soft"> · {ruleName(rule)}</span>}
        </span>
        <code>{rule.key_pattern}</code>
      </span>
    ),
  },
  { key: 'plan', header: 'Plan', width: '14%', sortable: true, under: true, render: ({ plan }) => plan ?? 'all plans' },
  {
    key: 'limit',
    header: 'Limit',
    width: '26%',
    sortable: true,
    under: true,
    render: (rule) => (
      <>
        {ruleEffect(rule)} <RuleEnds rule={rule} change={inForce.get(rule.rule_id)} />
      </>
    ),
  },
  { key: 'state', header: 'State', width: 132, wide: true, render: (rule) => <RuleChips rule={rule} /> },
  timeColumn('updated', 'Changed', ({ updated_at }) => updated_at, { width: 116, numeric: true, sortable: true }),
];

const sortBy = {
  pattern: (rule: Rule) => rule.key_pattern,
  plan: (rule: Rule) => rule.plan ?? '',
  limit: (rule: Rule) => rule.rate_per_second,
  updated: (rule: Rule) => rule.updated_at,
};

export default function Rules() {
  const tenant = useTenant();
  const { edit } = useRole();
  const rules = useQuery(rulesQuery(tenant));
  const inForce = useChangesInForce(tenant);
  const search = useSearch({ from: '/shell/t/$tenant/rules' });
  const navigate = useNavigate();
  const set = (change: RulesSearch) =>
    navigate({ to: '.', search: (before: RulesSearch) => ({ ...before, ...change }), replace: true });

  const create = edit && (
    <LinkButton leftSection={<IconPlus size={15} />} to="/t/$tenant/rules/new" params={{ tenant }}>
      New rule
    </LinkButton>
  );

  return (
    <Page {...headings.rules} actions={create}>
      <EndingSoon tenant={tenant} />
      <Query query={rules}>
        {(items) => {
          if (items.length === 0) {
            return (
              <EmptyState icon={IconRules} title="No rules yet" action={create}>
                Without rules every request is allowed.
              </EmptyState>
            );
          }
          const shown = sorted(
            items.filter((rule) => fits(rule, search)),
            search.sort,
            sortBy,
          );
          return (
            <>
              <Filters search={search} set={set} tenant={tenant} rules={items} />
              <Card flush>
                {shown.length === 0 ? (
                  <EmptyState
                    title="No results"
                    action={
                      <Button variant="default" onClick={() => navigate({ to: '.', search: {} })}>
                        Show all {plural(items.length, 'rule')}
                      </Button>
                    }
                  />
                ) : (
                  <DataTable
                    label="Rules"
                    columns={columnsOf(inForce)}
                    rows={shown}
                    rowKey={(rule) => rule.rule_id}
                    to={({ rule_id }) => ({ to: '/t/$tenant/rules/$rule', params: { tenant, rule: rule_id } })}
                    sort={search.sort}
                    onSort={(sort) => set({ sort })}
                  />
                )}
              </Card>
            </>
          );
        }}
      </Query>
    </Page>
  );
}

export function fits(rule: Rule, { q, scope, plan, meter, mode, state }: RulesSearch): boolean {
  return (
    isFound(q, rule.key_pattern, rule.name, ruleName(rule), rule.description) &&
    (!scope || rule.scope === scope) &&
    (!plan || (plan === '*' ? rule.plan === null : rule.plan === plan)) &&
    (!meter || rule.meter === meter) &&
    (!mode || rule.mode === mode) &&
    (!state || isOn(rule, serverNow()) === (state === 'on'))
  );
}

interface FilterProps {
  tenant: string;
  search: RulesSearch;
  set: (change: RulesSearch) => void;
  rules: Rule[];
}

function Filters({ tenant, search, set, rules }: FilterProps) {
  const meters = [...new Set(rules.map(({ meter }) => meter))].sort();
  const { data: plans = [] } = useQuery(plansQuery(tenant));
  const filter = (name: keyof RulesSearch, label: string, choices: Choice[]) => (
    <ChoiceField
      aria-label={label}
      value={search[name] ?? ''}
      data={[{ value: '', label }, ...choices]}
      onChange={(value) => set({ [name]: value || undefined })}
    />
  );
  return (
    <Group gap={8} role="search" className={styles.filters} aria-label="Filter the rules">
      <FilterField
        search
        label="Search"
        placeholder="Pattern, name, description"
        value={search.q}
        onChange={(q) => set({ q })}
        className={styles.search}
      />
      {filter('scope', 'Any scope', choicesOf(scopeLabels))}
      {filter('plan', 'Any plan', [
        { value: '*', label: 'All plans' },
        ...plans.map(({ name }) => ({ value: name, label: name })),
      ])}
      {(meters.length > 1 || search.meter) &&
        filter(
          'meter',
          'Any meter',
          meters.map((meter) => ({ value: meter, label: upper(meterUnit(meter) || meter) })),
        )}
      {filter('mode', 'Enforced or shadow', choicesOf(modeLabels))}
      {filter('state', 'On or off', choicesOf({ on: 'On', off: 'Off' }))}
    </Group>
  );
}
