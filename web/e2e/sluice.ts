import { type ChildProcess, spawn } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/** What `make test` builds; SLUICE_BINARY names another. */
const { SLUICE_BINARY: binary = join(import.meta.dirname, '../../.bin/sluice'), ...environment } =
  process.env;

/** A running `sluice dev`: its own data, its own ports, gone when it is stopped. */
export interface Sluice {
  url: string;
  checkUrl: string;
  /** Ends the process and keeps its data and addresses: a server that is away. */
  pause(): Promise<void>;
  resume(): Promise<void>;
  stop(): Promise<void>;
}

/** The credentials that exist in `sluice dev` alone. */
export const demo = {
  email: 'admin@example.com',
  password: 'sluice-demo',
  tenant: 'demo',
  key: 'slk_demo_0123456789abcdef0123456789abcdef',
};

export async function startSluice(): Promise<Sluice> {
  // Not below the checkout, which the user that Postgres runs as may be unable to reach.
  const folder = await mkdtemp(join(tmpdir(), 'sluice-e2e-'));
  const [check, admin, metrics] = await Promise.all([freePort(), freePort(), freePort()]);
  const env = {
    ...environment,
    SLUICE_DATA_DIR: join(folder, 'data'),
    SLUICE_CHECK_ADDR: `127.0.0.1:${check}`,
    SLUICE_ADMIN_ADDR: `127.0.0.1:${admin}`,
    SLUICE_METRICS_ADDR: `127.0.0.1:${metrics}`,
  };
  const url = `http://127.0.0.1:${admin}`;
  let process_: ChildProcess;

  async function start() {
    const log: string[] = [];
    process_ = spawn(binary, ['dev'], { env, stdio: ['ignore', 'pipe', 'pipe'] });
    process_.stdout?.on('data', (text) => log.push(String(text)));
    process_.stderr?.on('data', (text) => log.push(String(text)));
    await until(60_000, async () => {
      if (process_.exitCode !== null) throw new Error(`sluice dev ended:\n${log.join('')}`);
      return (await answers(`${url}/healthz`)) && (await answers(`http://127.0.0.1:${check}/readyz`));
    });
  }

  async function end() {
    if (process_.exitCode !== null) return;
    const ended = new Promise((resolve) => process_.once('exit', resolve));
    process_.kill('SIGTERM');
    await ended;
  }

  await start();
  return {
    url,
    checkUrl: `http://127.0.0.1:${check}`,
    pause: end,
    resume: start,
    async stop() {
      await end();
      await rm(folder, { recursive: true, force: true });
    },
  };
}

async function answers(url: string): Promise<boolean> {
  try {
    return (await fetch(url)).ok;
  } catch {
    return false;
  }
}

/** Waits until a condition holds, asking often; fails after so many milliseconds. */
export async function until(ms: number, condition: () => Promise<boolean>): Promise<void> {
  const deadline = Date.now() + ms;
  while (!(await condition())) {
    if (Date.now() > deadline) throw new Error(`it did not happen within ${ms} ms`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

/** A port that was free a moment ago. */
function freePort(): Promise<number> {
  return new Promise((resolve, reject) => {
    const server = createServer();
    server.once('error', reject);
    server.listen(0, '127.0.0.1', () => {
      const address = server.address();
      server.close(() =>
        typeof address === 'object' && address ? resolve(address.port) : reject(new Error('no port')),
      );
    });
  });
}
