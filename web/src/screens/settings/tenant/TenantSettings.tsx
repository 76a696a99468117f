import { useQuery } from '@tanstack/react-query';
import { plansQuery, tenantQuery } from '~/api/queries';
import { Facts } from '~/components/Facts';
import { Card } from '~/components/Page';
import { Query } from '~/components/Query';
import { useRole, useSession, useTenant } from '~/session';
import { WebhookCard } from '../audit/WebhookCard';
import { CapacityCard } from './Capacity';
import { SecondFactorCard } from './SecondFactor';
import { EnforcementCard, SuspensionCard } from './Switches';
import { factsOf } from './settings';
import { TenantForm } from './TenantForm';

export default function TenantSettings() {
  const slug = useTenant();
  const { own } = useRole();
  const { account } = useSession();
  const tenant = useQuery(tenantQuery(slug));
  const plans = useQuery(plansQuery(slug));
  return (
    <Query query={tenant}>
      {(saved) => (
        <>
          <Card title="Tenant">
            {own ? (
              <Query query={plans}>
                {(items) => <TenantForm saved={saved} plans={items.map(({ name }) => name)} />}
              </Query>
            ) : (
              <Facts facts={{ Slug: <code>{slug}</code>, ...factsOf(saved.value) }} />
            )}
          </Card>
          <EnforcementCard tenant={saved.value} />
          <SecondFactorCard saved={saved} />
          <WebhookCard />
          <CapacityCard tenant={slug} editable={account.platform_admin} />
          {account.platform_admin && <SuspensionCard tenant={saved.value} />}
        </>
      )}
    </Query>
  );
}
