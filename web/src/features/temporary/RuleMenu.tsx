import { ActionIcon, Menu } from '@mantine/core';
import { Link } from '@tanstack/react-router';
import { lazy, Suspense, useState } from 'react';
import type { RuleName } from '~/api/types';
import { IconArrowRight, IconBan, IconBolt, IconCheck, IconDots } from '~/components/icons';
import { ruleLabel } from '~/domain/rule';
import { type RuleAction, ruleVerbs } from './ruleDraft';

// As in GroupMenu: most visits open none.
const RuleForATime = lazy(() => import('./RuleForATime'));

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
      <Menu position="bottom-end">
        <Menu.Target>
          <ActionIcon aria-label={`Actions for rule ${ruleLabel(rule)}`}>
            <IconDots size={16} />
          </ActionIcon>
        </Menu.Target>
        <Menu.Dropdown>
          {actions.map((one) => {
            const Icon = icons[one];
            return (
              <Menu.Item key={one} leftSection={<Icon size={14} />} onClick={() => setAction(one)}>
                {ruleVerbs[one]} …
              </Menu.Item>
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
        </Menu.Dropdown>
      </Menu>
      {action && (
        <Suspense fallback={null}>
          <RuleForATime
            tenant={tenant}
            id={rule.rule_id}
            action={action}
            denied={denied}
            onClose={() => setAction(null)}
          />
        </Suspense>
      )}
    </>
  );
}
