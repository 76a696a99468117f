import { NumberInput } from '@mantine/core';
import { useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { changed } from '~/api/changes';
import { api, type Tagged } from '~/api/client';
import { isStatus } from '~/api/problem';
import { capacityQuery } from '~/api/queries';
import type { Capacity, CapacityThing } from '~/api/types';
import { FormDialog } from '~/components/FormDialog';
import { done } from '~/components/toast';
import { capacityWords } from '~/domain/capacity';
import { exactNumber } from '~/domain/format';

interface Props {
  tenant: string;
  saved: Tagged<Capacity>;
  onClose: () => void;
}

type Draft = Partial<Record<CapacityThing, number>>;

export default function CapacityForm({ tenant, saved, onClose }: Props) {
  const queries = useQueryClient();
  const [{ value, etag }] = useState(saved); // as they were when the form opened
  const [draft, setDraft] = useState<Draft>(() =>
    Object.fromEntries(value.items.filter((one) => !one.is_default).map((one) => [one.thing, one.allowed])),
  );

  async function save() {
    try {
      await api.put('/api/v1/tenants/{tenant}/capacity', { tenant, etag, body: draft });
    } catch (error) {
      // The screen shows the present capacity behind the form.
      if (isStatus(error, 412)) await queries.invalidateQueries(capacityQuery(tenant));
      throw error;
    }
    await changed(queries, tenant, 'capacity');
    done('Capacity saved');
  }

  return (
    <FormDialog
      title="Edit capacity"
      lead="A number below what is held removes nothing, and refuses more."
      verb="Save capacity"
      onClose={onClose}
      save={save}
    >
      {(wrong) =>
        value.items.map((one) => (
          <NumberInput
            key={one.thing}
            label={capacityWords[one.thing].label}
            description={`${exactNumber(one.held)} held, default ${exactNumber(one.default)}`}
            placeholder={exactNumber(one.default)}
            thousandSeparator=","
            allowDecimal={false}
            allowNegative={false}
            max={1_000_000_000}
            value={draft[one.thing] ?? ''}
            error={wrong(`/${one.thing}`)}
            onChange={(now) => {
              const { [one.thing]: _, ...others } = draft;
              setDraft(typeof now === 'number' ? { ...others, [one.thing]: now } : others);
            }}
          />
        ))
      }
    </FormDialog>
  );
}
