import { RuleLink } from '~/components/RuleLink';
import { shortTime } from '~/domain/format';
import { type Group, groupNouns } from '~/domain/group';
import { EndNow } from './EndNow';
import type { Match } from './matching';
import styles from './temporary.module.css';

interface Props {
  tenant: string;
  group: Group;
  bypasses: Match[];
}

const shown = 3;

/** Bypass rules decide before a new block or limit; those that name only this group can be ended here. */
export function BypassNote({ tenant, group, bypasses }: Props) {
  const noun = groupNouns[group.by];
  const all = bypasses.some(({ partly }) => !partly);
  return (
    <div className={styles.bypasses}>
      <p>
        {all
          ? `No effect now: these rules let every check of this ${noun} through.`
          : `Some checks of this ${noun} stay allowed by these rules.`}
      </p>
      <ul className={styles.list} aria-label="Rules that let through">
        {bypasses.slice(0, shown).map(({ rule, own }) => (
          <li key={rule.rule_id}>
            <RuleLink tenant={tenant} id={rule.rule_id} rule={rule} />
            <span className="soft">
              {rule.expires_at === null ? 'without end' : `until ${shortTime(Date.parse(rule.expires_at))}`}
            </span>
            {own && <EndNow tenant={tenant} rule={rule} />}
          </li>
        ))}
      </ul>
      {bypasses.length > shown && <p className="soft">And {bypasses.length - shown} more.</p>}
    </div>
  );
}
