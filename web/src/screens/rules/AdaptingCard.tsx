import { useQuery } from '@tanstack/react-query';
import { adaptingQuery } from '~/api/queries';
import type { Rule } from '~/api/types';
import { Facts } from '~/components/Facts';
import { Outcome } from '~/components/Outcome';
import { Card } from '~/components/Page';
import { Query } from '~/components/Query';
import { RelativeTime } from '~/components/Time';
import { adaptText, seenText } from '~/domain/adapt';

export function AdaptingCard({ tenant, rule }: { tenant: string; rule: Rule }) {
  const adapting = useQuery({ ...adaptingQuery(tenant), enabled: rule.adapt !== null });
  if (!rule.adapt) return null;
  return (
    <Card title="Adapting" lead={adaptText(rule.adapt)}>
      <Query query={adapting}>
        {(all) => {
          const now = all.find(({ rule_id }) => rule_id === rule.rule_id);
          if (!now) return <p className="soft">Saved a moment ago.</p>;
          const lowered = now.share_percent < 100;
          return (
            <Facts
              facts={{
                'In force': lowered ? (
                  <Outcome tone="degraded">
                    {now.limit_text} ({now.share_percent} %)
                  </Outcome>
                ) : (
                  `${now.limit_text}, as configured`
                ),
                Why: lowered && now.cause,
                Since: lowered && now.since && <RelativeTime at={now.since} />,
                Backend: seenText(now),
              }}
            />
          );
        }}
      </Query>
    </Card>
  );
}
