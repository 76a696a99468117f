import type { components } from './schema';

/* The API's shapes by their names. */
type Schemas = components['schemas'];
export type Account = Schemas['Account'];
export type AuditEntry = Schemas['AuditEntry'];
export type Bucket = Schemas['Bucket'];
export type Explanation = Schemas['Explanation'];
export type FailureMode = Schemas['FailureMode'];
export type Key = Schemas['Key'];
export type Matrix = Schemas['Matrix'];
export type MatrixCell = Schemas['MatrixCell'];
export type MatrixDiff = Schemas['MatrixDiff'];
export type MatrixRow = Schemas['MatrixRow'];
export type Member = Schemas['Member'];
export type Membership = Schemas['Membership'];
export type NewRule = Schemas['NewRule'];
export type Override = Schemas['Override'];
export type Plan = Schemas['Plan'];
export type Rule = Schemas['Rule'];
export type RulePatch = Schemas['RulePatch'];
export type Scope = Schemas['Scope'];
export type Session = Schemas['Session'];
export type Simulation = Schemas['Simulation'];
export type Tenant = Schemas['Tenant'];
export type Timeline = Schemas['Timeline'];
export type User = Schemas['User'];
