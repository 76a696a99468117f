import { Button, NativeSelect } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { useNavigate, useSearch } from '@tanstack/react-router';
import { useState } from 'react';
import { rulesQuery } from '~/api/queries';
import type { Override, Rule } from '~/api/types';
import { ChoiceField } from '~/components/ChoiceField';
import { FilterField } from '~/components/FilterField';
import { IconBolt, IconPlus } from '~/components/icons';
import { Card, Page } from '~/components/Page';
import { EmptyState } from '~/components/states';
import { ruleLabel } from '~/domain/rule';
import { OverrideDialog } from '~/features/overrides/OverrideDialog';
import { OverrideTable } from '~/features/overrides/OverrideTable';
import { isOverridable } from '~/features/overrides/overridable';
import { TemporaryRules } from '~/features/temporary/TemporaryRules';
import { headings } from '~/headings';
import type { OverridesSearch } from '~/search';
import { useRole, useTenant } from '~/session';
import styles from './Overrides.module.css';

export default function Overrides() {
  const tenant = useTenant();
  const { edit } = useRole();
  const search: OverridesSearch = useSearch({ from: '/shell/t/$tenant/overrides' });
  const navigate = useNavigate({ from: '/t/$tenant/overrides' });
  const { data: rules = [], isPending } = useQuery(rulesQuery(tenant));
  const [editing, setEditing] = useState<Override | 'new' | null>(null);
  const overridable = rules.filter(isOverridable);
  const create = edit && (isPending || overridable.length > 0) && (
    <Button
      leftSection={<IconPlus size={15} />}
      style={{ visibility: isPending ? 'hidden' : undefined }}
      onClick={() => setEditing('new')}
    >
      New override
    </Button>
  );

  return (
    <Page {...headings.overrides} actions={create}>
      <Filters
        search={search}
        rules={rules.filter((rule) => isOverridable(rule) || rule.rule_id === search.rule)}
        onChange={(change) => navigate({ search: (old) => ({ ...old, ...change }), resetScroll: false })}
      />
      <TemporaryRules tenant={tenant} />
      <Card flush>
        <OverrideTable
          tenant={tenant}
          which={search}
          rules={rules}
          edit={edit}
          onEdit={setEditing}
          none={<None search={search} create={create} />}
        />
      </Card>
      {editing === 'new' && (
        <OverrideDialog tenant={tenant} rules={overridable} saved={[]} onClose={() => setEditing(null)} />
      )}
      {editing && editing !== 'new' && (
        <OverrideDialog
          tenant={tenant}
          rules={rules.filter(({ rule_id }) => rule_id === editing.rule_id)}
          user={{ user_id: editing.user_id }}
          saved={[editing]}
          onClose={() => setEditing(null)}
        />
      )}
    </Page>
  );
}

interface FilterProps {
  search: OverridesSearch;
  rules: Rule[];
  onChange: (change: OverridesSearch) => void;
}

function Filters({ search, rules, onChange }: FilterProps) {
  return (
    <search className={styles.find} aria-label="Filter overrides">
      <FilterField
        search
        className={styles.prefix}
        label="User id"
        placeholder="User id or prefix"
        value={search.prefix}
        onChange={(prefix) => onChange({ prefix })}
      />
      <ChoiceField
        aria-label="Rule"
        value={search.rule ? String(search.rule) : ''}
        data={[
          { value: '', label: 'Any rule' },
          ...rules.map((rule) => ({ value: String(rule.rule_id), label: ruleLabel(rule) })),
        ]}
        onChange={(rule) => onChange({ rule: rule || undefined })}
      />
      <NativeSelect
        aria-label="Ends"
        value={search.ends ?? ''}
        data={[
          { value: '', label: 'Any end' },
          { value: 'soon', label: 'Ending within 7 days' },
          { value: 'expired', label: 'Expired' },
        ]}
        onChange={({ currentTarget: { value } }) => onChange({ ends: (value || undefined) as OverridesSearch['ends'] })}
      />
    </search>
  );
}

function None({ search, create }: { search: OverridesSearch; create: React.ReactNode }) {
  const icon = IconBolt;
  if (search.prefix || search.rule) {
    return <EmptyState icon={icon} title="No results" />;
  }
  if (search.ends === 'soon') {
    return <EmptyState icon={icon} title="No override ends within 7 days" />;
  }
  if (search.ends === 'expired') {
    return <EmptyState icon={icon} title="No expired overrides" />;
  }
  return (
    <EmptyState icon={icon} title="No overrides yet" action={create}>
      An override gives one user another limit for a rule.
    </EmptyState>
  );
}
