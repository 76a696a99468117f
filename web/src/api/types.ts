import type { Adapt as OptionalAdapt } from './schema';

export type * from './schema';
export type Adapt = NonNullable<OptionalAdapt>;
