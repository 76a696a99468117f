import { Menu } from '@mantine/core';
import { Link } from '@tanstack/react-router';
import { useState } from 'react';
import type { RuleName } from '~/api/types';
import { IconArrowRight, IconBan, IconBolt, IconCheck } from '~/components/icons';
import { later } from '~/components/later';
import { Act, MoreMenu } from '~/components/MoreMenu';
import { ruleLabel } from '~/domain/rule';
import { type RuleAction, ruleVerbs } from './ruleDraft';

const RuleForATime = later(() => import('./RuleForATime'));

interface Props {
  tenant: string;
  rule: RuleName;
  denied: number;
}

const icons = { block: IconBan, limit: IconBolt, pass: IconCheck, enforce: IconBan };

export function RuleMenu({ tenant, rule, denied }: Props) {
  const [action, setAction] = useState<RuleAction | null>(null);
  const actions: RuleAction[] = rule.mode === 'shadow' ? ['enforce'] : ['pass', 'limit', 'block'];
  return (
    <>
      <MoreMenu label={`Actions for rule ${ruleLabel(rule)}`}>
        {actions.map((one) => {
          const Icon = icons[one];
          return (
            <Act icon={Icon} key={one} onClick={() => setAction(one)}>
              {ruleVerbs[one]} …
            </Act>
          );
        })}
        <Menu.Item
          leftSection={<IconArrowRight size={14} />}
          renderRoot={(props) => (
            <Link to="/t/$tenant/rules/$rule" params={{ tenant, rule: String(rule.rule_id) }} {...props} />
          )}
        >
          Open rule
        </Menu.Item>
      </MoreMenu>
      {action && (
        <RuleForATime
          tenant={tenant}
          id={rule.rule_id}
          action={action}
          denied={denied}
          onClose={() => setAction(null)}
        />
      )}
    </>
  );
}
