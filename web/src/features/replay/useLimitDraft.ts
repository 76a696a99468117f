import { useQuery } from '@tanstack/react-query';
import { useState } from 'react';
import { rulesQuery } from '~/api/queries';
import type { Rule } from '~/api/types';
import { newRuleOf } from '~/domain/newRule';
import { hasRate, isValid, type Limit, limitSentence, parseRate, sameLimit, shapeOf } from '~/domain/rate';
import { ruleLabel } from '~/domain/rule';
import type { ReplaysSearch } from '~/search';
import type { NewReplay } from './queries';

export function useLimitDraft(tenant: string, begin: ReplaysSearch, enabled: boolean) {
  const { data = [] } = useQuery({ ...rulesQuery(tenant), enabled });
  const [id, setId] = useState(begin.rule);
  const [typed, setTyped] = useState<Limit | null>(null);
  const rules = data.filter(isReplayable);
  const rule = rules.find(({ rule_id }) => rule_id === id);
  const limit = rule ? (typed ?? limitToBegin(rule, begin)) : null;
  return {
    rules,
    rule,
    limit,
    title: rule && limit ? `${ruleLabel(rule)}: ${limitSentence(limit)}`.slice(0, 200) : '',
    /** Null until another limit is chosen. */
    candidate: rule && limit && isValid(limit) && !sameLimit(rule, limit) ? candidateOf(rule, limit) : null,
    onRule: (chosen: string) => {
      setId(chosen);
      setTyped(null);
    },
    onLimit: setTyped,
  };
}

export function isReplayable({ action, algorithm }: Rule): boolean {
  return action === 'limit' && algorithm !== 'concurrency';
}

function limitToBegin(rule: Rule, begin: ReplaysSearch): Limit {
  const { rate_per_second, rate_unit, burst_capacity } = rule;
  const present = { ...shapeOf(rule), rate_per_second, rate_unit, burst_capacity };
  if (begin.rule !== rule.rule_id) return present;
  const rate = hasRate(rule.algorithm) && parseRate(begin.rate ?? '', rate_unit);
  return { ...present, ...rate, burst_capacity: begin.burst ?? burst_capacity };
}

function candidateOf(rule: Rule, { rate_per_second, rate_unit, burst_capacity }: Limit): Pick<NewReplay, 'rules'> {
  return {
    rules: [newRuleOf({ ...rule, rate_per_second, rate_unit, burst_capacity, is_active: true })],
  };
}
