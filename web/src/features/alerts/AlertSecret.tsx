import { CodeBlock } from '~/components/CodeBlock';
import { SecretDialog } from '~/components/SecretDialog';
import { recipe } from './recipe';

export function AlertSecret({ secret, onClose }: { secret: string; onClose: () => void }) {
  return (
    <SecretDialog title="Signing secret" what="secret" secret={secret} onClose={onClose}>
      <p className="soft">
        Each webhook has the header <code>Sluice-Signature: t=…,v1=…</code>, where <code>v1</code> is the hexadecimal
        HMAC-SHA256, under this secret, of <code>t</code>, a dot and the body.
      </p>
      <CodeBlock label="Check a webhook in Node.js" code={recipe} />
    </SecretDialog>
  );
}
