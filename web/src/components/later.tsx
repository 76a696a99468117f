import { lazy, Suspense } from 'react';

/** A component whose code is loaded when it is drawn for the first time. */
export function later<P extends object>(load: () => Promise<{ default: React.ComponentType<P> }>) {
  const Part = lazy(load) as unknown as React.ComponentType<P>;
  return (props: P) => (
    <Suspense fallback={null}>
      <Part {...props} />
    </Suspense>
  );
}
