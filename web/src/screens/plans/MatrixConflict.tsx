import { ConflictDialog } from '~/components/ConflictDialog';
import { limitSentence } from '~/domain/rate';
import { ruleLabel } from '~/domain/rule';
import type { Clash } from './draft';

interface Props {
  lost: Clash[];
  onKeepMine: () => void;
  onTakeTheirs: () => void;
  onClose: () => void;
}

export function MatrixConflict({ lost, onKeepMine, onTakeTheirs, onClose }: Props) {
  const versions = lost.map(({ edit: { place, limit }, now }) => ({
    label: ruleLabel(place),
    mine: limit ? limitSentence(limit) : 'no limit',
    theirs: now ? limitSentence(now) : 'no limit',
  }));
  return (
    <ConflictDialog
      opened={lost.length > 0}
      what={lost.length === 1 ? 'this limit' : 'these limits'}
      versions={versions}
      onKeepMine={onKeepMine}
      onTakeTheirs={onTakeTheirs}
      onClose={onClose}
    />
  );
}
