import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { createInterface } from 'node:readline';

export interface Provider {
  issuer: string;
  register(sluice: string): Promise<void>;
  /** Somebody who signed in stays until asked again. */
  be(person: Record<string, unknown>): Promise<void>;
  stop(): Promise<void>;
}

export const client = { id: 'sluice', secret: 'a secret of sixteen characters and more' };

export async function startProvider(): Promise<Provider> {
  const folder = join(import.meta.dirname, 'provider');
  const process = spawn('node', ['server.js'], { cwd: folder, stdio: ['ignore', 'pipe', 'pipe'] });
  let complaints = '';
  process.stderr.on('data', (text) => (complaints += text));
  const lines = createInterface(process.stdout);
  const [issuer] = await Promise.race([
    once(lines, 'line'),
    once(process, 'exit').then(() => {
      throw new Error(`the provider ended; npm run e2e installs it\n${complaints}`);
    }),
  ]);
  const put = async (path: string, body: unknown) => {
    const answer = await fetch(`${issuer}${path}`, { method: 'PUT', body: JSON.stringify(body) });
    if (!answer.ok) throw new Error(`${path} answered ${answer.status}\n${complaints}`);
  };
  return {
    issuer,
    register: (sluice) =>
      put('/test/client', {
        client_id: client.id,
        client_secret: client.secret,
        redirect_uris: [`${sluice}/api/v1/auth/example/callback`],
        post_logout_redirect_uris: [`${sluice}/sign-in`],
      }),
    be: (person) => put('/test/person', person),
    async stop() {
      const ended = once(process, 'exit');
      process.kill();
      await ended;
    },
  };
}
