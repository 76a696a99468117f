import { Select } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { useNavigate } from '@tanstack/react-router';
import { ClearFilters } from '~/components/ClearFilters';
import { actions, kinds } from '~/domain/audit';
import { keyLabel } from '~/domain/key';
import { ranges } from '~/domain/range';
import type { SettingsSearch } from '~/search';
import { keysQuery } from '../keys/queries';
import { membersQuery } from '../members/queries';
import styles from './Audit.module.css';

export function Filters({ tenant, search }: { tenant: string; search: SettingsSearch }) {
  const navigate = useNavigate();
  const members = useQuery(membersQuery(tenant));
  const keys = useQuery(keysQuery(tenant));
  const set = (more: Partial<SettingsSearch>) =>
    navigate({ to: '.', search: (old: object) => ({ ...old, ...more, entry: undefined }) });
  const actors = [
    ...(members.data ?? []).map(({ account_id, email }) => ({ value: String(account_id), label: email })),
    ...(keys.data ?? []).map((key, _, all) => ({
      value: key.key_id,
      label: `API key ${keyLabel(key, all)}`,
    })),
  ];
  const filtered = Object.entries(search).some(([name, value]) => name !== 'entry' && value !== undefined);
  const common = { clearable: true, size: 'sm', className: styles.filter } as const;
  return (
    <div className={styles.filters}>
      <Select
        {...common}
        aria-label="Object"
        placeholder="Any object"
        data={kinds}
        value={search.kind ?? null}
        onChange={(kind) => set({ kind: kind ?? undefined, object: undefined })}
      />
      <Select
        {...common}
        aria-label="Action"
        placeholder="Any action"
        data={actions}
        value={search.action ?? null}
        onChange={(action) => set({ action: action ?? undefined })}
      />
      <Select
        {...common}
        aria-label="Author"
        placeholder="Anyone"
        searchable
        data={actors}
        value={search.actor ?? null}
        onChange={(actor) => set({ actor: actor ?? undefined })}
      />
      <Select
        {...common}
        aria-label="Time range"
        placeholder="Any time"
        data={ranges.map(({ value, label }) => ({ value, label }))}
        value={search.range ?? null}
        onChange={(range) => set({ range: range ?? undefined })}
      />
      {filtered && <ClearFilters onClear={() => navigate({ to: '.', search: {} })} />}
    </div>
  );
}
