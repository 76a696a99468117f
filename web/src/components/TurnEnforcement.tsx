import { useQuery, useQueryClient } from '@tanstack/react-query';
import { setEnforcement } from '~/api/enforcement';
import { summaryQuery } from '~/api/traffic';
import type { Tenant } from '~/api/types';
import { exactNumber, plural } from '~/domain/format';
import { namedSpan } from '~/domain/range';
import { ConfirmAction } from './ConfirmAction';
import { done } from './toast';

const lastHour = namedSpan('1h');

interface Props {
  tenant: Tenant;
  opened: boolean;
  onClose: () => void;
}

export function TurnEnforcement({ tenant, opened, onClose }: Props) {
  const queries = useQueryClient();
  const on = tenant.enforcement === 'on';
  const summary = useQuery({ ...summaryQuery(tenant.slug, lastHour), enabled: opened && on });
  const total = summary.data?.total;
  const checks = total ? total.allowed + total.denied + total.bypassed : 0;
  return (
    <ConfirmAction
      opened={opened}
      onClose={onClose}
      title={on ? `Put ${tenant.name} in shadow?` : `Enforce ${tenant.name}'s rules again?`}
      effect={
        on ? (
          <>
            Within 2 s every check is allowed, also where a rule blocks. Violations record what would have been denied.
            {total && (
              <>
                {' '}
                In the last hour {exactNumber(total.denied)} of {plural(checks, 'check')} were denied. Such checks will
                be allowed.
              </>
            )}
          </>
        ) : (
          'Within 2 s every rule uses its own mode again. Buckets keep their level.'
        )
      }
      verb={on ? 'Put in shadow' : 'Enforce again'}
      destructive={on}
      action={async () => {
        await setEnforcement(queries, tenant.slug, on ? 'shadow' : 'on');
        done(on ? `${tenant.name} is in shadow` : `${tenant.name}'s rules are enforced again`);
      }}
    />
  );
}
