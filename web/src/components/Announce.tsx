import { useEffect, useRef, useState } from 'react';

const often = 15_000;

/** Tells screen readers a changing text, at most every 15 seconds. */
export function Announce({ children }: { children: string }) {
  const [said, setSaid] = useState('');
  const at = useRef(0);
  useEffect(() => {
    const timer = setTimeout(
      () => {
        at.current = Date.now();
        setSaid(children);
      },
      Math.max(0, at.current + often - Date.now()),
    );
    return () => clearTimeout(timer);
  }, [children]);
  return (
    <span className="aside" role="status">
      {said}
    </span>
  );
}
