import { Button, Group } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { Link, useParams } from '@tanstack/react-router';
import { useState } from 'react';
import type { Tagged } from '~/api/client';
import { ruleQuery, rulesOfPatternQuery } from '~/api/queries';
import type { Rule } from '~/api/types';
import { Card, Page } from '~/components/Page';
import { Query } from '~/components/Query';
import { LoadingLines } from '~/components/states';
import { patternInWords } from '~/domain/pattern';
import { Crossings } from '~/features/crossings/Crossings';
import { isOverridable } from '~/features/overrides/overridable';
import { useRole, useTenant } from '~/session';
import { AdaptingCard } from './AdaptingCard';
import { BucketPicture } from './BucketPicture';
import { CandidateActions } from './CandidateActions';
import { ComparisonCard } from './ComparisonCard';
import { EnforceRule } from './EnforceRule';
import { ExpiredNote } from './ExpiredNote';
import { History } from './History';
import { RuleActions } from './RuleActions';
import { RuleAlerts } from './RuleAlerts';
import { RuleChips } from './RuleChips';
import { RuleEditor } from './RuleEditor';
import { RuleOverrides } from './RuleOverrides';
import styles from './Rules.module.css';
import { ScheduledCard } from './ScheduledCard';
import { ScheduleRule } from './ScheduleRule';
import { TriedBeside } from './TriedBeside';
import { TryAsShadow } from './TryAsShadow';
import { useRuleEditor } from './useRuleEditor';
import { Verdicts } from './Verdicts';

/** One rule: its form, simulation, verdicts, crossings, alerts, overrides and history. */
export default function RulePage() {
  const tenant = useTenant();
  const { rule: id } = useParams({ from: '/shell/t/$tenant/rules/$rule' });
  const rule = useQuery(ruleQuery(tenant, Number(id)));
  // Another rule gets a new editor, so that a draft is never saved to the wrong rule.
  return <Query query={rule}>{(data) => <Loaded key={id} saved={data} />}</Query>;
}

function Loaded({ saved }: { saved: Tagged<Rule> }) {
  const tenant = useTenant();
  const { edit } = useRole();
  const editor = useRuleEditor(tenant, saved);
  const rule = saved.value;
  const { draft } = editor;
  const alike = useQuery(rulesOfPatternQuery(tenant, rule.key_pattern));
  const [scheduling, setScheduling] = useState(false);
  const candidate = alike.data?.find(({ candidate_for }) => candidate_for === rule.rule_id);
  const isCandidate = rule.candidate_for !== null;
  const { data: live, isPending: awaitsLive } = useQuery({
    ...ruleQuery(tenant, rule.candidate_for ?? 0),
    enabled: isCandidate,
    retry: false,
  });
  // What can be done, and what stands above the form, depends on both.
  if (alike.isPending || (isCandidate && awaitsLive)) return <LoadingLines />;

  return (
    <Page
      title={
        rule.name ? `${patternInWords(rule.key_pattern)}: ${rule.name}` : patternInWords(rule.key_pattern)
      }
      beside={<RuleChips rule={rule} />}
      lead={
        <>
          <code>{rule.key_pattern}</code> on {rule.plan ?? 'all plans'}
        </>
      }
      above={
        <Link to="/t/$tenant/rules" params={{ tenant }}>
          Rules
        </Link>
      }
      actions={
        <>
          {edit && (
            <RuleActions
              tenant={tenant}
              saved={saved}
              dirty={editor.dirty}
              hasCandidate={candidate !== undefined}
            />
          )}
          {edit && editor.dirty && (
            <Group gap={8}>
              <Button variant="default" onClick={editor.reset}>
                Discard
              </Button>
              {rule.mode === 'enforce' &&
                draft.mode === 'enforce' &&
                draft.action !== 'bypass' &&
                candidate === undefined && (
                  <TryAsShadow
                    tenant={tenant}
                    rule={rule}
                    draft={draft}
                    ready={editor.ready}
                    onSaved={editor.reset}
                  />
                )}
              <Button variant="default" disabled={!editor.ready} onClick={() => setScheduling(true)}>
                Schedule
              </Button>
              <Button loading={editor.saving} disabled={!editor.ready} onClick={editor.save}>
                Save
              </Button>
            </Group>
          )}
          {edit && !editor.dirty && rule.mode === 'shadow' && live && (
            <CandidateActions tenant={tenant} saved={saved} live={live} />
          )}
          {edit && !editor.dirty && rule.mode === 'shadow' && !live && (
            <EnforceRule tenant={tenant} saved={saved} />
          )}
        </>
      }
    >
      {scheduling && (
        <ScheduleRule
          tenant={tenant}
          rule={editor.rule}
          draft={draft}
          onClose={() => setScheduling(false)}
          onScheduled={() => {
            setScheduling(false);
            editor.reset();
          }}
        />
      )}
      <ExpiredNote tenant={tenant} rule={rule} hasCandidate={candidate !== undefined} />
      {candidate && <TriedBeside tenant={tenant} candidate={candidate} />}
      {live && <ComparisonCard tenant={tenant} candidate={rule} />}
      <div className={styles.columns}>
        <RuleEditor tenant={tenant} editor={editor} disabled={!edit} />
        <div className={`${styles.column} in-order`}>
          {draft.action === 'limit' && <BucketPicture limit={draft} />}
          <ScheduledCard tenant={tenant} rule={rule} />
          <AdaptingCard tenant={tenant} rule={rule} />
          <Verdicts tenant={tenant} rule={rule} />
          {rule.algorithm === 'fixed_window' && rule.action === 'limit' && (
            <Crossings tenant={tenant} which={{ rule: rule.rule_id }} rules={[rule]} />
          )}
          <RuleAlerts tenant={tenant} rule={rule} />
          {isOverridable(rule) && <RuleOverrides tenant={tenant} rule={rule} />}
          <Card title="History" flush>
            <History tenant={tenant} ruleId={rule.rule_id} />
          </Card>
        </div>
      </div>
    </Page>
  );
}
