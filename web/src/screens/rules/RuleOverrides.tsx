import { Button } from '@mantine/core';
import { useState } from 'react';
import type { Override, Rule } from '~/api/types';
import { IconPlus } from '~/components/icons';
import { Card } from '~/components/Page';
import { OverrideDialog } from '~/features/overrides/OverrideDialog';
import { OverrideTable } from '~/features/overrides/OverrideTable';
import { useRole } from '~/session';
import styles from './Rules.module.css';

export function RuleOverrides({ tenant, rule }: { tenant: string; rule: Rule }) {
  const { edit } = useRole();
  const [editing, setEditing] = useState<Override | 'new' | null>(null);
  const over = editing === 'new' ? null : editing;
  return (
    <Card
      title="Overrides"
      flush
      actions={
        edit && (
          <Button variant="default" leftSection={<IconPlus size={15} />} onClick={() => setEditing('new')}>
            New override
          </Button>
        )
      }
    >
      <OverrideTable
        tenant={tenant}
        which={{ rule: rule.rule_id }}
        rules={[rule]}
        without="rule"
        edit={edit}
        onEdit={setEditing}
        none={<p className={styles.nothing}>No overrides.</p>}
      />
      {editing && (
        <OverrideDialog
          tenant={tenant}
          rules={[rule]}
          user={over ? { user_id: over.user_id } : undefined}
          saved={over ? [over] : []}
          onClose={() => setEditing(null)}
        />
      )}
    </Card>
  );
}
