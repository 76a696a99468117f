import { type ChildProcess, spawn } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/** The binary of `make test`; SLUICE_BINARY names another. */
const { SLUICE_BINARY: binary = join(import.meta.dirname, '../../.bin/sluice'), ...environment } = process.env;

/** A running `sluice dev`: its own data, its own ports, gone when it is stopped. */
export interface Sluice {
  url: string;
  checkUrl: string;
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

/** The one private address that webhooks may be posted to. */
export const allowed = '127.0.0.2';

export async function startSluice(options: Record<string, string> = {}): Promise<Sluice> {
  // Not below the checkout, which the user that Postgres runs as may be unable to reach.
  const folder = await mkdtemp(join(tmpdir(), 'sluice-e2e-'));
  let running = await run(folder, { check: anyPort, admin: anyPort, metrics: anyPort }, options).catch(
    async (error) => {
      await rm(folder, { recursive: true, force: true });
      throw error;
    },
  );
  const { addresses } = running;
  return {
    url: `http://${addresses.admin}`,
    checkUrl: `http://${addresses.check}`,
    pause: () => end(running.process),
    async resume() {
      // Whoever was lent one of the ports meanwhile has it for a moment.
      await until(async () => {
        try {
          running = await run(folder, addresses, options);
          return true;
        } catch (error) {
          if (String(error).includes('address already in use')) return false;
          throw error;
        }
      });
    },
    async stop() {
      await end(running.process);
      await rm(folder, { recursive: true, force: true });
    },
  };
}

/** A port that the system chooses when it is listened on, so that nobody can take it before. */
const anyPort = '127.0.0.1:0';

interface Addresses {
  check: string;
  admin: string;
  metrics: string;
}

async function run(folder: string, wanted: Addresses, options: Record<string, string>) {
  const env = {
    ...environment,
    SLUICE_DATA_DIR: join(folder, 'data'),
    SLUICE_CHECK_ADDR: wanted.check,
    SLUICE_ADMIN_ADDR: wanted.admin,
    SLUICE_METRICS_ADDR: wanted.metrics,
    SLUICE_GRPC_ADDR: '127.0.0.1:0',
    SLUICE_WEBHOOK_ALLOW: `${allowed}/32`,
    // Other tests are about Redis being away; a busy machine must not cause it here.
    SLUICE_STORE_BUDGET: '5s',
    ...options,
  };
  const process = spawn(binary, ['dev'], { env, stdio: ['ignore', 'pipe', 'pipe'] });
  let log = '';
  for (const stream of [process.stdout, process.stderr]) stream.on('data', (text) => (log += text));
  process.once('error', (error) => (log += error)); // it cannot be run at all
  try {
    await until(async () => {
      if (hasEnded(process)) throw new Error('it ended');
      const greeted = greeting(log);
      return (
        greeted !== null &&
        (await answers(`http://${greeted.admin}/healthz`)) &&
        (await answers(`http://${greeted.check}/readyz`))
      );
    }, startPatience);
  } catch (error) {
    await end(process);
    throw new Error(`sluice dev does not answer: ${error}\n${log}`);
  }
  return { process, addresses: greeting(log) ?? wanted };
}

function greeting(log: string): Addresses | null {
  const check = /http:\/\/([\d.:]+)\/v1\/check/.exec(log)?.[1];
  const admin = /^Admin +http:\/\/([\d.:]+)/m.exec(log)?.[1];
  const metrics = /^Metrics +http:\/\/([\d.:]+)\/metrics$/m.exec(log)?.[1];
  return check && admin && metrics ? { check, admin, metrics } : null;
}

function hasEnded({ pid, exitCode, signalCode }: ChildProcess): boolean {
  return pid === undefined || exitCode !== null || signalCode !== null;
}

async function end(process: ChildProcess): Promise<void> {
  if (hasEnded(process)) return;
  const ended = new Promise((resolve) => process.once('exit', resolve));
  process.kill('SIGTERM');
  await ended;
}

async function answers(url: string): Promise<boolean> {
  try {
    return (await fetch(url)).ok;
  } catch {
    return false;
  }
}

/** How long a sluice may take to start, and anything else to happen, before it counts as never. */
const startPatience = 180_000;
const patience = 60_000;

const pause = 50;

export async function until(condition: () => Promise<boolean>, within = patience): Promise<void> {
  const deadline = Date.now() + within;
  while (!(await condition())) {
    if (Date.now() > deadline) throw new Error(`it did not happen within ${within} ms`);
    await new Promise((resolve) => setTimeout(resolve, pause));
  }
}

/** Counts at most 4 ms of a tick, so that the time without a processor does not count, as awake does in Go. */
export async function timeUntil(condition: () => Promise<boolean>): Promise<number> {
  let awake = 0;
  let last = performance.now();
  const clock = setInterval(() => {
    const now = performance.now();
    awake += Math.min(now - last, 4);
    last = now;
  }, 1);
  try {
    await until(condition);
  } finally {
    clearInterval(clock);
  }
  return awake;
}
