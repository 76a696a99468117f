import { useQuery } from '@tanstack/react-query';
import { lazy, Suspense, useEffect } from 'react';
import { answerProof, useProofAsked } from '~/api/proof';
import { sessionQuery } from '~/api/queries';

const ProofForm = lazy(() => import('./ProofForm'));

export function ProofDialog() {
  const asked = useProofAsked();
  const { data: session } = useQuery({ ...sessionQuery, enabled: false });
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
