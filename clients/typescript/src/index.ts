export { type FailureMode, type Observation, type Options, Sluice } from './client.js';
export { Limiter } from './limiter.js';
export {
  type Check,
  type Decision,
  type ErrorKind,
  type FieldError,
  type Recorded,
  type Settlement,
  SluiceError,
  type Source,
  type Tier,
} from './types.js';
export { version } from './version.js';
