import { useQuery, useQueryClient } from '@tanstack/react-query';
import { changed } from '~/api/changes';
import { api, type Tagged } from '~/api/client';
import { membersQuery } from '~/api/queries';
import type { Member, Tenant } from '~/api/types';
import { ConfirmAction } from '~/components/ConfirmAction';
import { Outcome } from '~/components/Outcome';
import { plural } from '~/domain/format';
import { useRole, useSession } from '~/session';
import { SwitchCard } from './Switches';

export function SecondFactorCard({ saved: { value: tenant, etag } }: { saved: Tagged<Tenant> }) {
  const { own } = useRole();
  const { two_factors } = useSession();
  const queries = useQueryClient();
  const required = tenant.settings.require_second_factor;
  return (
    <SwitchCard
      title="Second factor"
      state={<Outcome tone={required ? 'allowed' : 'neutral'}>{required ? 'Required' : 'Optional'}</Outcome>}
      note={required ? 'API keys are not affected.' : 'Each member decides.'}
      verb={required ? 'Make optional' : 'Require'}
      may={own}
    >
      {(asked) => (
        <ConfirmAction
          {...asked}
          title={required ? 'Make the second factor optional?' : 'Require a second factor?'}
          effect={
            required
              ? 'A stolen password alone will open this tenant to whoever has it.'
              : two_factors
                ? asked.opened && <Effect tenant={tenant.slug} />
                : 'Set up your own on your profile first; otherwise you would lose access yourself.'
          }
          verb={required ? 'Make optional' : 'Require'}
          destructive={required}
          action={async () => {
            await api.patch('/api/v1/tenants/{tenant}', {
              tenant: tenant.slug,
              etag,
              body: { settings: { require_second_factor: !required } },
            });
            await changed(queries, tenant.slug, 'tenant');
          }}
        />
      )}
    </SwitchCard>
  );
}

function Effect({ tenant }: { tenant: string }) {
  const { data: members } = useQuery(membersQuery(tenant));
  const without = (members ?? []).filter(({ second_factor, disabled }) => second_factor === false && !disabled);
  if (members && without.length === 0) return 'Every member has one. Whoever joins sets one up first.';
  return (
    <>
      Members without one lose access until they set one up on their profile
      {without.length > 0 && (
        <>
          : <strong>{plural(without.length, 'member')}</strong> of {members?.length}, {namesOf(without)}
        </>
      )}
      . Those who sign in at a provider that counts as two factors keep it.
    </>
  );
}

function namesOf(members: Member[]): string {
  const shown = members.slice(0, 5).map(({ email }) => email);
  const more = members.length - shown.length;
  return more > 0 ? `${shown.join(', ')} and ${more} more` : shown.join(', ');
}
