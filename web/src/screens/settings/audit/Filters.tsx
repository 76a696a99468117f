import { Select, type SelectProps } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { useNavigate } from '@tanstack/react-router';
import { membersQuery } from '~/api/queries';
import { ClearFilters } from '~/components/ClearFilters';
import { actions, kinds } from '~/domain/audit';
import { keyLabel } from '~/domain/key';
import { ranges } from '~/domain/range';
import type { SettingsSearch } from '~/search';
import { keysQuery } from '../keys/queries';
import styles from './Audit.module.css';

export function Filters({ tenant, search }: { tenant: string; search: SettingsSearch }) {
  const navigate = useNavigate();
  const members = useQuery(membersQuery(tenant));
  const keys = useQuery(keysQuery(tenant));
  const set = (more: Partial<SettingsSearch>) =>
    navigate({ to: '.', search: (old: object) => ({ ...old, ...more, entry: undefined }) });
  const actors = [
    ...(members.data ?? []).map(({ account_id, email }) => ({ value: String(account_id), label: email })),
    ...(keys.data ?? []).map((key, _, all) => ({ value: key.key_id, label: `API key ${keyLabel(key, all)}` })),
  ];
  const filtered = Object.entries(search).some(([name, value]) => name !== 'entry' && value !== undefined);
  const filter = (
    name: 'kind' | 'action' | 'actor' | 'range',
    label: string,
    placeholder: string,
    data: SelectProps['data'],
    more?: SelectProps,
  ) => (
    <Select
      clearable
      size="sm"
      className={styles.filter}
      aria-label={label}
      placeholder={placeholder}
      data={data}
      value={search[name] ?? null}
      onChange={(value) => set({ [name]: value ?? undefined, ...(name === 'kind' && { object: undefined }) })}
      {...more}
    />
  );
  return (
    <div className={styles.filters}>
      {filter('kind', 'Object', 'Any object', kinds)}
      {filter('action', 'Action', 'Any action', actions)}
      {filter('actor', 'Author', 'Anyone', actors, { searchable: true })}
      {filter(
        'range',
        'Time range',
        'Any time',
        ranges.map(({ value, label }) => ({ value, label })),
      )}
      {filtered && <ClearFilters onClear={() => navigate({ to: '.', search: {} })} />}
    </div>
  );
}
