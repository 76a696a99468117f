import type { AuditEntry } from '~/api/types';

export function actorOf({ actor: { kind, name, id } }: AuditEntry): string {
  return kind === 'api_key' ? `API key ${name || id}` : name || id || kind;
}
