import { useState } from 'react';
import { fieldsOf } from './useSave';

/** The values of a form, and the props of their inputs: `{...field('name', wrong)}`. */
export function useFields<D extends object>(begin: D) {
  const [values, setValues] = useState(begin);
  const change = (part: Partial<D>) => setValues((before) => ({ ...before, ...part }));
  return { values, change, field: fieldsOf(values, change) };
}
