import { useQuery } from '@tanstack/react-query';
import { lazy, Suspense, useEffect } from 'react';
import { answerProof, useProofAsked } from '~/api/proof';
import { sessionQuery } from '~/api/queries';

const ProofForm = lazy(() => import('./ProofForm'));

/** Asks people to sign in again before something dangerous. The request that was refused is then sent again. */
export function ProofDialog() {
  const asked = useProofAsked();
  const { data: session } = useQuery({ ...sessionQuery, enabled: false });
  // The session ended: there is nobody to ask.
  useEffect(() => {
    if (asked && session === null) answerProof(false);
  }, [asked, session]);
  if (!asked || !session) return null;
  return (
    <Suspense fallback={null}>
      <ProofForm session={session} />
    </Suspense>
  );
}
