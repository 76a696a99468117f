import { useQuery } from '@tanstack/react-query';
import { plansQuery, tenantQuery } from '~/api/queries';
import { Card } from '~/components/Page';
import { Query } from '~/components/Query';
import { useRole, useSession, useTenant } from '~/session';
import { WebhookCard } from '../audit/WebhookCard';
import { CapacityCard } from './Capacity';
import { EnforcementCard } from './Enforcement';
import { SecondFactorCard } from './SecondFactor';
import { Suspension } from './Suspension';
import { TenantFacts } from './TenantFacts';
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
              <TenantFacts tenant={saved.value} />
            )}
          </Card>
          <EnforcementCard tenant={saved.value} />
          <SecondFactorCard saved={saved} />
          <WebhookCard />
          <CapacityCard tenant={slug} editable={account.platform_admin} />
          {account.platform_admin && <Suspension saved={saved} />}
        </>
      )}
    </Query>
  );
}
