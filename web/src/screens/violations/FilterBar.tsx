import { NativeSelect, SegmentedControl, Select } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { plansQuery, rulesQuery } from '~/api/queries';
import { useRemovedRule } from '~/api/removal';
import { ChoiceField } from '~/components/ChoiceField';
import { ClearFilters } from '~/components/ClearFilters';
import { FilterField } from '~/components/FilterField';
import { choicesOf, ruleLabel, scopeLabels } from '~/domain/rule';
import type { ViolationsSearch } from '~/search';
import { Fold } from './Fold';
import styles from './Violations.module.css';

interface Props {
  tenant: string;
  search: ViolationsSearch;
  onChange: (change: Partial<ViolationsSearch>) => void;
}

type Filters = Pick<ViolationsSearch, 'user' | 'rule' | 'scope' | 'endpoint' | 'ip' | 'plan' | 'mode'>;
const none: Filters = {
  user: undefined,
  rule: undefined,
  scope: undefined,
  endpoint: undefined,
  ip: undefined,
  plan: undefined,
  mode: undefined,
};

const folded = (Object.keys(none) as (keyof Filters)[]).filter((name) => name !== 'mode');

export function isFiltered(search: ViolationsSearch): boolean {
  return Object.keys(none).some((name) => search[name as keyof Filters] !== undefined);
}

export function FilterBar({ tenant, search, onChange }: Props) {
  const rules = useRuleChoices(tenant, search.rule);
  const { data: plans = [] } = useQuery(plansQuery(tenant));
  const ranked = search.group !== undefined; // rankings are of an outcome or a rule
  const modes = [
    { value: '', label: 'All' },
    { value: 'enforce', label: 'Denied' },
    { value: 'shadow', label: 'Shadow' },
  ];
  return (
    <search className={styles.filters} aria-label="Filters">
      <Fold set={folded.filter((name) => search[name] !== undefined).length} />
      <SegmentedControl
        aria-label="Outcome"
        data={modes}
        value={search.mode ?? ''}
        onChange={(mode) => onChange({ mode: (mode || undefined) as Filters['mode'] })}
      />
      {!ranked && <Who search={search} onChange={onChange} />}
      {search.group !== 'rule' && (
        <Select
          aria-label="Rule"
          placeholder="Any rule"
          searchable
          clearable
          className={styles.rule}
          comboboxProps={{ width: 360, position: 'bottom-start' }}
          clearButtonProps={{ 'aria-label': 'Any rule' }}
          nothingFoundMessage="No results"
          data={rules}
          value={search.rule === undefined ? null : String(search.rule)}
          onChange={(rule) => onChange({ rule: rule ?? undefined })}
        />
      )}
      {!ranked && (
        <>
          {' '}
          <NativeSelect
            aria-label="Scope"
            value={search.scope ?? ''}
            data={[{ value: '', label: 'Any scope' }, ...choicesOf(scopeLabels)]}
            onChange={(event) => onChange({ scope: (event.currentTarget.value || undefined) as Filters['scope'] })}
          />
          <ChoiceField
            aria-label="Plan"
            value={search.plan ?? ''}
            data={[{ value: '', label: 'Any plan' }, ...plans.map(({ name }) => name)]}
            onChange={(plan) => onChange({ plan: plan || undefined })}
          />
        </>
      )}
      {isFiltered(search) && <ClearFilters onClear={() => onChange(none)} />}
    </search>
  );
}

function Who({ search, onChange }: Pick<Props, 'search' | 'onChange'>) {
  return (
    <>
      <FilterField
        search
        label="User"
        placeholder="User id"
        value={search.user}
        onChange={(user) => onChange({ user })}
      />
      <FilterField
        label="Endpoint"
        placeholder="Endpoint, /api/*"
        value={search.endpoint}
        onChange={(endpoint) => onChange({ endpoint })}
      />
      <FilterField
        label="IP address or network"
        placeholder="IP or network"
        value={search.ip}
        onChange={(ip) => onChange({ ip })}
      />
    </>
  );
}

/** The rules, and the one in the filter even if it was removed: its violations remain. */
function useRuleChoices(tenant: string, asked: string | undefined): { value: string; label: string }[] {
  const { data: rules = [], isSuccess } = useQuery(rulesQuery(tenant));
  const missing = asked !== undefined && !rules.some(({ rule_id }) => rule_id === asked);
  const removed = useRemovedRule(tenant, missing && isSuccess ? asked : undefined);
  const choices = rules.map((rule) => ({ value: String(rule.rule_id), label: ruleLabel(rule) }));
  if (!missing) return choices;
  const label = removed ? `${ruleLabel(removed)} · removed` : `Rule ${asked}`;
  return [...choices, { value: String(asked), label }];
}
