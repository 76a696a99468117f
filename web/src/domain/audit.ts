import type { Adapt, AuditAction, AuditEntry, AuditObjectKind } from '~/api/types';
import { adaptText } from './adapt';
import { algorithms } from './algorithm';
import { exactTime, plural } from './format';
import { chargeLabels } from './meter';
import { upper } from './pattern';
import { type RateUnit, rateSentence } from './rate';
import type { Permissions } from './roles';
import { actionLabels, failureModeLabels, fieldLabels, leaseLabels, modeLabels, ruleTitle } from './rule';

type Row = Record<string, unknown>;

export const kinds: { value: AuditObjectKind; label: string }[] = [
  { value: 'rule', label: 'Rules' },
  { value: 'override', label: 'Overrides' },
  { value: 'plan', label: 'Plans' },
  { value: 'user', label: 'Users' },
  { value: 'bucket', label: 'Buckets' },
  { value: 'api_key', label: 'API keys' },
  { value: 'member', label: 'Members' },
  { value: 'invitation', label: 'Invitations' },
  { value: 'alert', label: 'Alerts' },
  { value: 'gateway', label: 'Gateways' },
  { value: 'replay', label: 'Replays' },
  { value: 'scheduled_change', label: 'Scheduled changes' },
  { value: 'audit_webhook', label: 'Webhook of the audit log' },
  { value: 'tenant', label: 'Tenant' },
  { value: 'capacity', label: 'Capacity' },
];

const verbs: Record<AuditAction, string> = {
  create: 'created',
  update: 'changed',
  remove: 'removed',
  reset: 'reset',
  credit: 'credited',
};

export const actions = Object.entries(verbs).map(([value, verb]) => ({ value, label: upper(verb) }));

export function verbOf(entry: AuditEntry): string {
  const { action, object, actor, before, after } = entry;
  if (isUndo(entry)) return undone[action];
  if (object.kind === 'rule' && action === 'update' && actor.act === 'promote') return 'enforced';
  if (object.kind === 'api_key' && !before?.revoked_at && after?.revoked_at) return 'revoked';
  if (object.kind === 'api_key' && actor.act === 'keep') return 'decided to keep';
  if (object.kind === 'tenant' && !before?.suspended_at && after?.suspended_at) return 'suspended';
  if (object.kind === 'tenant' && before?.suspended_at && !after?.suspended_at) return 'resumed';
  if (object.kind === 'tenant' && before && after && before.enforcement !== after.enforcement) {
    return after.enforcement === 'shadow' ? 'stopped enforcement of' : 'resumed enforcement of';
  }
  if (object.kind === 'scheduled_change' && after?.state === 'edited') return 'did not take back';
  if (object.kind === 'replay') return after?.is_canceled ? 'canceled' : 'started';
  return verbs[action];
}

const undone: Record<AuditAction, string> = {
  ...verbs,
  create: 'restored',
  update: 'undid a change of',
};

/** "import", "undo of change 812"; null if the change stands alone. */
export function causeOf({ actor: { act } }: AuditEntry): string | null {
  if (act === '') return null;
  if (act.startsWith('scheduled change ')) return act;
  return act.startsWith('revert ') ? `undo of change ${act.slice('revert '.length)}` : (causes[act] ?? act);
}

const causes: Record<string, string> = {
  import: 'import',
  matrix: 'changes on the Plans page',
  promote: 'enforcement of a shadow rule',
  'try as shadow': 'a candidate beside a live rule',
  rotate: 'key rotation',
  keep: 'decision about a leaver’s key',
  'rotate secret': 'new signing secret',
  'new URL': 'new URL of a webhook',
};

/** Names that entries have as ids only; undefined for removed objects. */
export interface Names {
  member: (id: string) => string | undefined;
  rule: (id: string) => string | undefined;
}

const nameless: Names = { member: () => undefined, rule: () => undefined };

export function objectOf({ object: { kind, id }, before, after, row_count }: AuditEntry, names = nameless): string {
  if (row_count) return kind === 'user' ? `the plans of ${plural(row_count, 'user')}` : plural(row_count, kind);
  const row: Row = after ?? before ?? {};
  const text = (field: string) => (typeof row[field] === 'string' ? row[field] : '');
  switch (kind) {
    case 'rule': {
      const title = ruleTitle({ key_pattern: text('key_pattern'), name: text('name'), meter: text('meter') });
      return `rule ${[title, text('plan')].filter(Boolean).join(' · ') || id}`;
    }
    case 'override':
      return overrideOf(id, names);
    case 'user':
      return `the plan of user ${id}`;
    case 'api_key':
      return `API key ${text('name') || id}`;
    case 'member':
      return `member ${names.member(id) ?? id}`;
    case 'invitation':
      return `the invitation of ${text('email') || id}`;
    case 'alert':
      return `alert ${text('name') || id}`;
    case 'gateway':
      return `the mapping of gateways (${id})`;
    case 'scheduled_change':
      return `scheduled change ${id}: ${text('title') || 'a rule'}`;
    case 'audit_webhook':
      return 'the webhook of the audit log';
    case 'tenant':
      return 'the tenant';
    case 'capacity':
      return 'the capacity';
    case 'bucket':
      return `a bucket of ${text('user_id') ? `user ${text('user_id')}` : id}`;
    default:
      return `${kind} ${id}`;
  }
}

function overrideOf(id: string, names: Names): string {
  const colon = id.indexOf(':');
  const rule = id.slice(0, colon);
  return `the override of user ${id.slice(colon + 1)} on ${names.rule(rule) ?? `rule ${rule}`}`;
}

export interface Change {
  field: string;
  before: string | null;
  after: string | null;
}

const ofEveryWrite = ['version', 'revision', 'created_at', 'updated_at', 'in_force_since'];
const bookkeeping = new Set([...ofEveryWrite, 'rate_unit', 'tenant_id']);

const labels: Record<string, string> = {
  ...fieldLabels,
  suspended_at: 'Suspended',
  revoked_at: 'Revoked',
  kept_at: 'Kept',
  user_id: 'User',
  rule_id: 'Rule',
  key_id: 'Key',
  account_id: 'Account',
  ipv4_prefix: 'IPv4 prefix',
  ipv6_prefix: 'IPv6 prefix',
  retry_jitter_percent: 'Retry jitter, %',
  url: 'Address',
};

/** Values as the editors name them. */
const valueLabels: Record<string, Record<string, string>> = {
  algorithm: Object.fromEntries(Object.entries(algorithms).map(([value, { label }]) => [value, label])),
  mode: modeLabels,
  action: actionLabels,
  failure_mode: failureModeLabels,
  charge: chargeLabels,
  lease: leaseLabels,
};

/** "Rate 10 per second → 20 per second". A created or removed object has one value, without an arrow. */
export function changeText({ field, before, after }: Change): string {
  return before !== null && after !== null ? `${field} ${before} → ${after}` : `${field} ${after ?? before}`;
}

export function changesOf(entry: AuditEntry): Change[] {
  const [before, after] = [plain(entry.before), plain(entry.after)];
  const fields = [...new Set([...Object.keys(before ?? {}), ...Object.keys(after ?? {})])];
  return fields
    .filter((field) => !bookkeeping.has(field))
    .map((field) => ({ field: label(field), before: shown(before, field), after: shown(after, field) }))
    .filter(({ before, after }) => (before ?? none) !== (after ?? none));
}

/** A rule's image has its lease only if somebody chose one. */
function plain(row: Row | null): Row | null {
  if (!row) return null;
  const shown: Row = 'algorithm' in row ? { lease: 'auto', ...row } : { ...row };
  if (shown.adapt) shown.adapt = adaptText(shown.adapt as Adapt);
  return shown;
}

function label(field: string): string {
  return labels[field] ?? upper(field.replaceAll('_', ' '));
}

const none = '–';

function shown(row: Row | null, field: string): string | null {
  if (!row) return null;
  const value = row[field];
  if (value === null || value === undefined || value === '') return none;
  if (field === 'rate_per_second' && typeof value === 'number') {
    return value > 0
      ? rateSentence({ rate_per_second: value, rate_unit: (row.rate_unit as RateUnit) ?? 'second' })
      : none;
  }
  const words = valueLabels[field];
  if (words && typeof value === 'string') return words[value] ?? value;
  if (field === 'is_active') return value ? 'on' : 'off';
  if (typeof value === 'boolean') return value ? 'yes' : 'no';
  if (/_(at|until)$/.test(field) && typeof value === 'string') return exactTime(Date.parse(value));
  if (Array.isArray(value)) return value.join(', ');
  return typeof value === 'object' ? JSON.stringify(value) : String(value);
}

/** Whether the reader may undo a change, and the server can (internal/pgstore/revert.go). */
export function revertable({ object: { kind }, before, after }: AuditEntry, may: Permissions): boolean {
  switch (kind) {
    case 'plan':
    case 'rule':
    case 'override':
    case 'user':
    case 'gateway':
      return may.edit;
    case 'tenant':
      return may.own && before !== null && after !== null;
    case 'api_key':
      return may.own && after !== null && !after.revoked_at;
    default:
      return false;
  }
}

/** Fields that change without anybody changing the object. */
const silent = new Set([...ofEveryWrite, 'last_used_at', 'last_seen_at']);

/** Only an object that is still as the entry left it can be undone. */
export function isAsLeft(entry: AuditEntry, latest: AuditEntry): boolean {
  return entry.audit_id === latest.audit_id || content(entry.after) === content(latest.after);
}

function content(row: Row | null): string {
  const fields = Object.entries(row ?? {}).filter(([field]) => !silent.has(field));
  return JSON.stringify(row && fields.toSorted(([a], [b]) => (a < b ? -1 : 1)));
}

export function undoes({ actor: { act } }: AuditEntry, { audit_id }: AuditEntry, row?: number): boolean {
  return act === `revert ${audit_id}` || (row !== undefined && act === `revert ${audit_id} row ${row}`);
}

export function isUndo({ actor: { act } }: AuditEntry): boolean {
  return act.startsWith('revert ');
}

/** A shadow rule that was enforced itself replaced no other. */
export function isPromotion({ actor: { act }, object: { kind }, action, before }: AuditEntry): boolean {
  return act === 'promote' && kind === 'rule' && action === 'update' && before?.mode !== 'shadow';
}
