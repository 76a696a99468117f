import { Button, Group, NativeSelect } from '@mantine/core';
import { FilterField } from '~/components/FilterField';
import { plural } from '~/domain/format';
import { isFound } from '~/domain/pattern';
import { ruleName, scopeLabels } from '~/domain/rule';
import type { PlansSearch } from '~/search';
import type { Row } from './draft';
import styles from './Matrix.module.css';

export const filtersFrom = 12;

export function rowFits(row: Row, { q, scope }: PlansSearch): boolean {
  return (!scope || row.scope === scope) && isFound(q, row.key_pattern, row.name, ruleName(row));
}

interface Props {
  rows: Row[];
  shown: number;
  isPart: boolean;
  search: PlansSearch;
  set: (change: PlansSearch) => void;
  onChangeMany: (() => void) | undefined;
}

export function MatrixFilters({ rows, shown, isPart, search, set, onChangeMany }: Props) {
  const choices = Object.entries(scopeLabels).map(([value, label]) => ({
    value,
    label: `${label} (${rows.filter(({ scope }) => scope === value).length})`,
  }));
  const filtered = shown < rows.length;
  return (
    <Group gap={8} role="search" aria-label="Filter the rules">
      <FilterField search label="Search" placeholder="Pattern, name" value={search.q} onChange={(q) => set({ q })} />
      <NativeSelect
        aria-label="Any scope"
        value={search.scope ?? ''}
        data={[{ value: '', label: 'Any scope' }, ...choices]}
        onChange={(event) => set({ scope: (event.currentTarget.value || undefined) as PlansSearch['scope'] })}
      />
      <span className={styles.hint} role="status">
        {filtered ? `${shown} of ${plural(rows.length, 'rule')}` : plural(rows.length, 'rule')}
        {isPart && ' so far'}
      </span>
      {onChangeMany && (
        <Button variant="default" ml="auto" disabled={shown === 0 || isPart} onClick={onChangeMany}>
          {filtered ? `Multiply these ${shown}` : 'Multiply limits'}
        </Button>
      )}
    </Group>
  );
}
