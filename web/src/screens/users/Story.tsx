import { useInfiniteQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import type { components } from '~/api/schema';
import type { Rule } from '~/api/types';
import { FormerRuleLink } from '~/components/FormerRuleLink';
import { Num } from '~/components/Num';
import { Outcome } from '~/components/Outcome';
import { Card } from '~/components/Page';
import { Query } from '~/components/Query';
import { RuleLink } from '~/components/RuleLink';
import { ShowMore } from '~/components/ShowMore';
import { LoadingLines } from '~/components/states';
import { actorOf } from '~/domain/actor';
import { type Change, changesOf, changeText, verbOf } from '~/domain/audit';
import { exactTime, plainTime } from '~/domain/format';
import { between, type Span } from '~/domain/range';
import { type Moment, storyQuery } from './queries';
import styles from './Users.module.css';

type Denials = components['schemas']['UserDenials'];
type Entry = NonNullable<Moment['entry']>;

const hour = 3_600_000;

interface Props {
  tenant: string;
  user: string;
  rules: Rule[] | undefined;
  span: Span;
}

export function Story({ tenant, user, rules, span }: Props) {
  const list = useInfiniteQuery(storyQuery(tenant, user, span));
  return (
    <Card title="Time line" flush>
      <Query query={list} loading={<LoadingLines lines={4} />}>
        {(moments) =>
          moments.length === 0 ? (
            <p className={styles.none}>Nothing in this time range.</p>
          ) : (
            <>
              <ol className={styles.story} aria-label="Time line">
                {moments.map(({ at, denials, entry }) => (
                  <li key={`${at} ${denials?.rule_id ?? ''} ${entry?.audit_id ?? ''}`}>
                    <time dateTime={at} title={exactTime(Date.parse(at))} className="numeric soft">
                      {plainTime(Date.parse(at), 'minute')}
                    </time>
                    {denials && <Denied tenant={tenant} user={user} at={at} denials={denials} />}
                    {entry && <Changed tenant={tenant} entry={entry} rules={rules} />}
                  </li>
                ))}
              </ol>
              {(list.hasNextPage || moments.length > 10) && <ShowMore list={list} rows={moments} noun="event" />}
            </>
          )
        }
      </Query>
    </Card>
  );
}

interface DeniedProps {
  tenant: string;
  user: string;
  at: string;
  denials: Denials;
}

function Denied({ tenant, user, at, denials: { rule_id, rule, mode, denied, exact } }: DeniedProps) {
  const from = Date.parse(at);
  const shadow = mode === 'shadow';
  return (
    <>
      <Outcome tone={shadow ? 'shadow' : 'denied'}>{shadow ? 'Shadow' : 'Denied'}</Outcome>
      <span>
        {!exact && 'At least '}
        <Link
          to="/t/$tenant/violations"
          params={{ tenant }}
          search={{ user, rule: rule_id, range: between(from, from + hour) }}
        >
          <Num value={denied} unit={denied === 1 ? 'check' : 'checks'} />
        </Link>{' '}
        in this hour, by <RuleLink tenant={tenant} id={rule_id} rule={rule ?? undefined} />
      </span>
    </>
  );
}

const words: Record<string, string> = { user: 'Plan', rule: 'Rule', override: 'Override' };

function Changed({ tenant, entry, rules }: { tenant: string; entry: Entry; rules: Rule[] | undefined }) {
  const { kind } = entry.object;
  const changes = kind === 'rule' ? effectOf(entry) : changesOf(entry).filter(isOfOverride);
  return (
    <>
      <Outcome tone="neutral">{words[kind]}</Outcome>
      <span>
        {actorOf(entry)}{' '}
        <Link
          to="/t/$tenant/settings/$section"
          params={{ tenant, section: 'audit' }}
          search={{ entry: entry.audit_id, ...(entry.row && { kind, object: entry.object.id }) }}
        >
          {verbOf(entry)}
        </Link>{' '}
        {kind === 'user' ? (
          'the plan'
        ) : (
          <>
            {kind === 'override' && 'the override of '}
            <FormerRuleLink
              tenant={tenant}
              id={ruleOf(entry)}
              rule={rules && (rules.find(({ rule_id }) => rule_id === ruleOf(entry)) ?? null)}
            />
          </>
        )}
        {changes.length > 0 && ': '}
        {changes.map(changeText).join(', ')}
      </span>
    </>
  );
}

const isOfOverride = ({ field }: Change) => field !== 'User' && field !== 'Rule';

/** The effect of a change of a rule on the user's checks: its action and limit, whether it is on, and its end. */
function effectOf(entry: Entry): Change[] {
  const told = ['Action', 'Rate', 'Burst', 'Ends', ...(entry.before ? ['Mode', 'State'] : [])];
  const blocks = entry.after?.action !== 'limit';
  return changesOf(entry).filter(
    ({ field }) => told.includes(field) && !(blocks && (field === 'Rate' || field === 'Burst')),
  );
}

function ruleOf({ object: { id } }: Entry): string {
  return id.replace(/:.*/s, '');
}
