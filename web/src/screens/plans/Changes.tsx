import { Link } from '@tanstack/react-router';
import type { MatrixDiff, MatrixRow, Plan, Rule, RuleChange, ScheduledChange } from '~/api/types';
import { effectSentence, useEffectOf } from '~/components/Effect';
import { IconAlert } from '~/components/icons';
import { plural } from '~/domain/format';
import { identityText, newRuleOf } from '~/domain/newRule';
import { limitSentence } from '~/domain/rate';
import { ruleTitle } from '~/domain/rule';
import { becomes, whenWords } from '~/domain/scheduled';
import { cellId, type Draft, rowId } from './draft';
import { removalNotes } from './inForce';
import styles from './Matrix.module.css';

interface Props {
  tenant: string;
  diff: MatrixDiff;
  draft: Draft;
  saved: Draft;
  rows: MatrixRow[];
  plans: Plan[];
  scheduled: Map<string, ScheduledChange>;
  isLater?: boolean;
}

export function candidateOf({ changes }: MatrixDiff) {
  return {
    rules: changes.flatMap(({ after }) => (after ? [newRuleOf(after)] : [])),
    remove: changes.flatMap(({ before, after }) => (before && !after ? [before.rule_id] : [])),
  };
}

export function Changes({ tenant, diff, draft, saved, rows, plans, scheduled, isLater }: Props) {
  const { data: effects } = useEffectOf(tenant, candidateOf(diff));
  const follows = (rule: Rule) => saved.has(cellId(rule)) && !draft.has(cellId(rule));
  const shown = diff.changes.filter(({ before, after }) => !follows((after ?? before) as Rule));
  return (
    <>
      {!isLater && <p className="soft">New limits start with full buckets.</p>}
      <ul className={styles.diff}>
        {shown.map((change) => {
          const { before, after } = change;
          const rule = (after ?? before) as Rule;
          const split = diff.changes.find(
            (one) => one.before?.plan === null && follows(one.before) && rowId(one.before) === rowId(rule),
          );
          const from = before ?? split?.before;
          const effect = effects?.rules.find((one) => one.rule === identityText(rule));
          // The effect of a split is that of all its rules, and the only change has the effect of the save.
          const hasEffect = effects?.is_recording !== false && shown.length > 1 && !split;
          const row = rows.find((one) => rowId(one) === rowId(rule));
          const removed = split?.before ?? (!after && rule.plan === null ? rule : undefined);
          const planned = !isLater && from ? scheduled.get(from.rule_id) : undefined;
          const overrides = change.overrides ?? split?.overrides;
          return (
            <li key={`${rule.key_pattern} ${rule.name} ${rule.plan}`}>
              <span>
                {ruleTitle(rule)} on <strong>{rule.plan ?? 'all plans'}</strong>
              </span>
              {from && (
                <span className={styles.from}>
                  <s>{limitSentence(from)}</s>
                </span>
              )}
              <span className={after ? styles.to : styles.removed}>{after ? limitSentence(after) : 'removed'}</span>
              {/* The line is there before its words are, so that Save does not move under the pointer. */}
              {hasEffect && <span className={styles.hint}>{effect ? effectSentence(effect) : '\u00a0'}</span>}
              {split?.before && (
                <span className={styles.hint}>
                  The others stay at {limitSentence(split.before)}. Each plan gets a rule of its own.
                </span>
              )}
              {removed &&
                row &&
                removalNotes(row, plans, saved).map((note) => (
                  <span key={note} className={styles.hint}>
                    {note}
                  </span>
                ))}
              {overrides && <Overrides tenant={tenant} rule={removed ?? rule} overrides={overrides} />}
              {planned && <Planned rule={rule} change={planned} isRemoved={!after || from !== before} />}
            </li>
          );
        })}
      </ul>
    </>
  );
}

interface OverridesProps {
  tenant: string;
  rule: Rule;
  overrides: NonNullable<RuleChange['overrides']>;
}

const toNewLimits = 'to the new limit of the user’s plan, or to each new limit if the user has no assigned plan.';

function Overrides({ tenant, rule, overrides: { moved, removed, removed_users } }: OverridesProps) {
  const more = removed - removed_users.length;
  return (
    <>
      {moved > 0 && (
        <span className={styles.hint}>
          {plural(moved, 'override')} {moved === 1 ? 'goes' : 'go'} {toNewLimits}
        </span>
      )}
      {removed > 0 && (
        <p className={styles.warning} role="status">
          <IconAlert size={16} aria-hidden />
          <span>
            <strong>
              {plural(removed, 'override')} {removed === 1 ? 'is' : 'are'} removed too:
            </strong>{' '}
            {removed_users.join(', ')}
            {more > 0 && ` and ${more} more`}.{' '}
            <Link to="/t/$tenant/overrides" params={{ tenant }} search={{ rule: rule.rule_id }} target="_blank">
              Show overrides
            </Link>
          </span>
        </p>
      )}
    </>
  );
}

interface PlannedProps {
  rule: Rule;
  change: ScheduledChange;
  isRemoved: boolean;
}

function Planned({ rule, change, isRemoved }: PlannedProps) {
  const patch = change.rules.find(({ rule_id }) => rule_id === rule.rule_id)?.change ?? {};
  const what =
    change.state === 'in_force'
      ? `A scheduled change of this rule is in force, ${whenWords(change)}. If you save this, its end takes ` +
        'nothing back.'
      : isRemoved
        ? `A change of this rule is scheduled, ${whenWords(change)}. It leaves out a removed rule.`
        : `A change of this rule is scheduled, ${whenWords(change)}: ${becomes(rule, patch)}. It is made all ` +
          `the same${change.ends_at ? ', and at its end this limit is back' : ''}.`;
  return (
    <p className={styles.warning} role="status">
      <IconAlert size={16} aria-hidden />
      <span>{what}</span>
    </p>
  );
}
