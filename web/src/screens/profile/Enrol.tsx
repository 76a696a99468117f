import { useState } from 'react';
import { api } from '~/api/client';
import type { Enrolment } from '~/api/types';
import { CodeInput } from '~/components/CodeInput';
import { Copy } from '~/components/Copy';
import { FormDialog } from '~/components/FormDialog';
import styles from './Profile.module.css';

interface Props {
  enrolment: Enrolment;
  onClose: () => void;
  onDone: (recoveryCodes: string[]) => void;
}

export function Enrol({ enrolment: { secret, qr }, onClose, onDone }: Props) {
  const [code, setCode] = useState('');
  const quiet = 4; // modules around the code, which readers need
  const side = qr.size + 2 * quiet;
  return (
    <FormDialog
      title="Set up a second factor"
      lead="Scan the code with an authenticator app, then type the six digits that it shows."
      verb="Turn on"
      onClose={onClose}
      onSaved={() => undefined}
      save={async () =>
        onDone((await api.post('/api/v1/account/second-factor/confirm', { body: { code } })).recovery_codes)
      }
    >
      {(wrong) => (
        <>
          <svg
            className={styles.qr}
            viewBox={`${-quiet} ${-quiet} ${side} ${side}`}
            role="img"
            aria-label="QR code with the secret"
            shapeRendering="crispEdges"
          >
            <path d={qr.path} />
          </svg>
          <div>
            <p className={styles.detail}>Or type this secret into the app:</p>
            <div className={styles.secret}>
              <code>{secret.match(/.{1,4}/g)?.join(' ')}</code>
              <Copy value={secret} label="Copy secret" />
            </div>
          </div>
          <CodeInput value={code} onChange={setCode} error={wrong('/code')} autoFocus appOnly />
        </>
      )}
    </FormDialog>
  );
}
