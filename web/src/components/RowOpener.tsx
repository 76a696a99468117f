import { Link, type LinkProps } from '@tanstack/react-router';
import styles from './DataTable.module.css';

interface Props {
  to?: LinkProps;
  onOpen?: () => void;
  tabIndex: number;
  onKeyDown: (event: React.KeyboardEvent) => void;
  onFocus: () => void;
  children: React.ReactNode;
}

export function RowOpener({ to, onOpen, children, ...rest }: Props) {
  const props = { ...rest, className: styles.opener, 'data-opener': true };
  if (!to) {
    return (
      <button type="button" {...props} onClick={onOpen}>
        {children}
      </button>
    );
  }
  return (
    <Link
      {...to}
      {...props}
      onClick={(event) => {
        if (!onOpen || isForNewTab(event)) return;
        event.preventDefault();
        onOpen();
      }}
    >
      {children}
    </Link>
  );
}

function isForNewTab({ button, ctrlKey, metaKey, shiftKey }: React.MouseEvent): boolean {
  return button === 1 || ctrlKey || metaKey || shiftKey;
}

/** Follows the row’s link, unless the click is on a control or ends a text selection. */
export function followRow(event: React.MouseEvent<HTMLElement>): void {
  if (!event.currentTarget.contains(event.target as Node)) return; // in a dialog that a cell opened
  if ((event.target as Element).closest('a, button, input, label') || getSelection()?.toString()) return;
  const opener = event.currentTarget.querySelector<HTMLElement>('[data-opener]');
  if (!isForNewTab(event)) {
    if (event.button === 0) opener?.click();
  } else if (opener instanceof HTMLAnchorElement) window.open(opener.href, '_blank', 'noopener');
}
