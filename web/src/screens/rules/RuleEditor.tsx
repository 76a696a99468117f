import { useQuery } from '@tanstack/react-query';
import { ProblemError, sentence } from '~/api/problem';
import { lastHourQuery } from '~/api/queries';
import { FormError } from '~/components/FormDialog';
import { Leaving } from '~/components/Leaving';
import { Card } from '~/components/Page';
import { exactNumber, plural } from '~/domain/format';
import { ChangeList } from './ChangeList';
import { RuleFields } from './RuleFields';
import styles from './Rules.module.css';
import { differences, stopsDenying } from './ruleDraft';
import type { RuleEditor as Editor } from './useRuleEditor';

interface Props {
  tenant: string;
  editor: Editor;
  disabled: boolean;
}

export function RuleEditor({ tenant, editor, disabled }: Props) {
  const { rule, draft, error } = editor;
  const stops = stopsDenying(rule, draft);
  const { data: lastHour } = useQuery({ ...lastHourQuery(tenant), enabled: stops });
  const denials = lastHour?.get(rule.rule_id);
  return (
    <Card title="Rule">
      <div className={styles.form} id="rule-form">
        <RuleFields draft={draft} onChange={editor.change} problem={editor.problem} disabled={disabled} stops={stops} />
        {editor.dirty && (
          <div className={styles.sentence} role="status" aria-label="Unsaved changes">
            <ChangeList of={differences(rule, draft)} />
            {rule.action === 'limit' && draft.action === 'limit' && <span>Buckets keep their tokens.</span>}
            {stops && (
              <p className={styles.warning}>
                This rule stops denying within 2 s after you save.
                {denials &&
                  ` In the last hour it denied ${exactNumber(denials.denied)} of ${plural(denials.checks, 'check')}.`}
              </p>
            )}
          </div>
        )}
        <FormError>
          {!error || (error instanceof ProblemError && error.document.errors) ? null : sentence(error)}
        </FormError>
      </div>
      {editor.conflict}
      <Leaving when={editor.dirty} what="Your changes to this rule" />
    </Card>
  );
}
