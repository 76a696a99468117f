import { useQuery } from '@tanstack/react-query';
import { useEffect } from 'react';
import { answerProof, useProofAsked } from '~/api/proof';
import { sessionQuery } from '~/api/queries';
import { later } from '~/components/later';

const ProofForm = later(() => import('./ProofForm'));

export function ProofDialog() {
  const asked = useProofAsked();
  const { data: session } = useQuery({ ...sessionQuery, enabled: false });
  useEffect(() => {
    if (asked && session === null) answerProof(false);
  }, [asked, session]);
  if (!asked || !session) return null;
  return <ProofForm session={session} />;
}
