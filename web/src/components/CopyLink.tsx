import { Button } from '@mantine/core';
import { useClipboard } from '@mantine/hooks';
import { useEffect } from 'react';
import { serverNow } from '~/api/clock';
import { between, type Span } from '~/domain/range';
import { IconCheck, IconCopy } from './icons';
import { failed } from './toast';

/** A range that ends now becomes fixed, so that the reader of the link sees the same. */
export function CopyLink({ range }: { range: Span }) {
  const { copy, copied, error } = useClipboard({ timeout: 3_000 });
  useEffect(() => {
    if (error) failed('The link was not copied', new Error('Copy it from the address bar.'));
  }, [error]);
  return (
    <Button
      variant="default"
      leftSection={copied ? <IconCheck size={14} /> : <IconCopy size={14} />}
      onClick={() => copy(fixedLink(location.href, range, serverNow()))}
    >
      <span aria-live="polite">{copied ? 'Link copied' : 'Copy link'}</span>
    </Button>
  );
}

function fixedLink(href: string, range: Span, now: number): string {
  const url = new URL(href);
  const { from, until } = range.at(now);
  url.searchParams.set('range', between(from, until));
  url.searchParams.delete('live');
  return url.href;
}
