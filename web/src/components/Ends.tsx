import type { Override } from '~/api/types';
import { Outcome } from './Outcome';
import { RelativeTime } from './Time';

/** When an override ends. */
export function Ends({ override: { expires_at, expired } }: { override: Override }) {
  if (expired) return <Outcome tone="neutral">Expired</Outcome>;
  return expires_at === null ? <span className="soft">never</span> : <RelativeTime at={expires_at} />;
}
