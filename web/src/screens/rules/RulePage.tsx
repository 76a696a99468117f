import { Button } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { Link, useNavigate, useParams, useSearch } from '@tanstack/react-router';
import { lazy, Suspense, useDeferredValue, useState } from 'react';
import type { Tagged } from '~/api/client';
import { isStatus } from '~/api/problem';
import { ruleQuery, rulesOfPatternQuery } from '~/api/queries';
import type { Rule } from '~/api/types';
import { ActionBar } from '~/components/ActionBar';
import { Card, Page } from '~/components/Page';
import { Query } from '~/components/Query';
import { LoadingLines } from '~/components/states';
import { done } from '~/components/toast';
import { ruleEffect, ruleTitle } from '~/domain/rule';
import { Crossings } from '~/features/crossings/Crossings';
import { isOverridable } from '~/features/overrides/overridable';
import { useRole, useTenant } from '~/session';
import { AdaptingCard } from './AdaptingCard';
import { BucketPicture } from './BucketPicture';
import { CandidateActions } from './CandidateActions';
import { ComparisonCard, TriedBeside } from './ComparisonCard';
import { DraftEffect } from './DraftEffect';
import { EnforceRule } from './EnforceRule';
import { ExpiredNote } from './ExpiredNote';
import { History } from './History';
import { RemovedRule } from './RemovedRule';
import { RuleActions } from './RuleActions';
import { RuleAlerts } from './RuleAlerts';
import { RuleEditor } from './RuleEditor';
import { RuleOverrides } from './RuleOverrides';
import { RuleChips, RuleEnds, useChangesInForce } from './RuleState';
import styles from './Rules.module.css';
import { ScheduledCard } from './ScheduledCard';
import { ScheduleRule } from './ScheduleRule';
import { TryAsShadow } from './TryAsShadow';
import { useRuleEditor } from './useRuleEditor';
import { Verdicts } from './Verdicts';

const TryLimit = lazy(() => import('./TryLimit'));

export default function RulePage() {
  const tenant = useTenant();
  const { rule: id } = useParams({ from: '/shell/t/$tenant/rules/$rule' });
  const rule = useQuery(ruleQuery(tenant, id));
  if (!rule.data && isStatus(rule.error, 404)) {
    return <RemovedRule key={id} tenant={tenant} id={id} error={rule.error} />;
  }
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
  const { open } = useSearch({ from: '/shell/t/$tenant/rules/$rule' });
  const navigate = useNavigate();
  // The palette opens this page with a dialog.
  const show = (dialog: 'schedule' | undefined) =>
    navigate({ to: '.', search: { open: dialog }, replace: true, resetScroll: false, ignoreBlocker: true });
  const inForce = useChangesInForce(tenant);
  const [trying, setTrying] = useState(false);
  const candidate = alike.data?.find(({ candidate_for }) => candidate_for === rule.rule_id);
  const isCandidate = rule.candidate_for !== null;
  const { data: live, isPending: awaitsLive } = useQuery({
    ...ruleQuery(tenant, rule.candidate_for ?? ''),
    enabled: isCandidate,
    retry: false,
  });
  function discard() {
    editor.discard();
    done('Edits discarded', { label: 'Undo', run: () => editor.change(draft) });
  }
  const triable = rule.mode === 'enforce' && rule.action !== 'bypass' && candidate === undefined;
  const isLoaded = !alike.isPending && !(isCandidate && awaitsLive);
  const isReady = useDeferredValue(isLoaded); // drawn in steps, between which the page answers

  return (
    <Page
      title={ruleTitle(rule)}
      beside={
        <>
          <RuleChips rule={rule} />
          <RuleEnds rule={rule} change={inForce.get(rule.rule_id)} />
        </>
      }
      lead={
        <>
          <code>{rule.key_pattern}</code> on {rule.plan ?? 'all plans'}: {ruleEffect(rule)}
        </>
      }
      above={
        <Link to="/t/$tenant/rules" params={{ tenant }}>
          Rules
        </Link>
      }
      actions={
        isReady && (
          <>
            {edit && (
              <RuleActions
                tenant={tenant}
                saved={saved}
                dirty={editor.dirty}
                onTry={triable && !editor.dirty ? () => setTrying(true) : undefined}
                onSchedule={rule.action === 'limit' ? () => show('schedule') : undefined}
              />
            )}
            {edit && !editor.dirty && triable && (
              <Button variant="default" onClick={() => setTrying(true)}>
                Try as shadow
              </Button>
            )}
            {edit && !editor.dirty && rule.mode === 'shadow' && live && (
              <CandidateActions tenant={tenant} saved={saved} live={live} />
            )}
            {edit && !editor.dirty && rule.mode === 'shadow' && !live && <EnforceRule tenant={tenant} saved={saved} />}
          </>
        )
      }
    >
      {isReady ? (
        <>
          {trying && (
            <Suspense fallback={null}>
              <TryLimit tenant={tenant} rule={rule} onClose={() => setTrying(false)} />
            </Suspense>
          )}
          {edit && open === 'schedule' && (editor.dirty || rule.action === 'limit') && (
            <ScheduleRule
              tenant={tenant}
              rule={editor.rule}
              draft={draft}
              onClose={() => show(undefined)}
              onScheduled={() => {
                show(undefined);
                editor.discard();
              }}
            />
          )}
          <ExpiredNote tenant={tenant} rule={rule} hasCandidate={candidate !== undefined} />
          {rule.no_descriptor && (
            <p className={styles.sentence} role="note">
              No descriptor meets this rule: the mapping of descriptors has no such domain or template.
            </p>
          )}
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
              {isOverridable(rule) && !isCandidate && <RuleOverrides tenant={tenant} rule={rule} />}
              <Card title="History" flush>
                <History tenant={tenant} ruleId={rule.rule_id} />
              </Card>
            </div>
          </div>
          {edit && editor.dirty && (
            <ActionBar
              label="Save this rule"
              text="Not saved"
              above={editor.ready && <DraftEffect tenant={tenant} rule={editor.rule} draft={draft} />}
            >
              <Button variant="default" onClick={discard}>
                Discard edits
              </Button>
              {triable && draft.mode === 'enforce' && draft.action !== 'bypass' && (
                <TryAsShadow tenant={tenant} rule={rule} draft={draft} ready={editor.ready} onSaved={editor.discard} />
              )}
              <Button variant="default" disabled={!editor.ready} onClick={() => show('schedule')}>
                Schedule
              </Button>
              <Button loading={editor.pending} disabled={!editor.ready} onClick={editor.submit}>
                Save
              </Button>
            </ActionBar>
          )}
        </>
      ) : (
        <LoadingLines lines={10} />
      )}
    </Page>
  );
}
