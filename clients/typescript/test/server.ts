/** A scripted server, a proxy that can fail, and a real Sluice. */
import { type ChildProcess, spawn } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import http from 'node:http';
import net, { type AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after } from 'node:test';

export const testKey = 'slk_test_topsecret0123456789';

export interface Scripted {
  fault?: 'slow' | 'trickle' | 'trickle_header' | 'reset' | 'truncated';
  status?: number;
  type?: string;
  headers?: Record<string, string>;
  body?: unknown;
  text?: string;
}

export interface Received {
  method: string;
  path: string;
  body: string;
  headers: http.IncomingHttpHeaders;
}

/** Answers by a function, and keeps the requests. */
export async function serve(answer: (request: Received) => Scripted | Promise<Scripted>) {
  const requests: Received[] = [];
  const server = http.createServer(async (request, response) => {
    let body = '';
    for await (const chunk of request) body += chunk;
    const { method = '', url: path = '', headers } = request;
    requests.push({ method, path, body, headers });
    const scripted = await answer({ method, path, body, headers });
    if (scripted.fault === 'slow') return;
    if (scripted.fault === 'trickle') {
      response.writeHead(200, { 'content-type': 'application/json' });
      const timer = setInterval(() => response.write(' '), 20);
      response.on('close', () => clearInterval(timer));
      return;
    }
    if (scripted.fault === 'trickle_header') {
      const { socket } = response;
      socket?.write('HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nX-Long: ');
      const timer = setInterval(() => socket?.write('x'), 20);
      socket?.on('close', () => clearInterval(timer));
      return;
    }
    if (scripted.fault) {
      if (scripted.fault === 'truncated') {
        response.socket?.write(
          'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"allowed":',
        );
      }
      response.socket?.end();
      response.socket?.destroySoon();
      return;
    }
    response.writeHead(scripted.status ?? 200, {
      'content-type': scripted.type ?? 'application/json',
      ...scripted.headers,
    });
    response.end(scripted.body === undefined ? scripted.text : JSON.stringify(scripted.body));
  });
  const url = `http://127.0.0.1:${await listen(server)}`;
  after(() => {
    server.closeAllConnections();
    server.close();
  });
  return { url, requests, take: () => requests.splice(0) };
}

async function listen(server: net.Server, port = 0): Promise<number> {
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject);
    server.listen(port, '127.0.0.1', resolve);
  });
  return (server.address() as AddressInfo).port;
}

export async function goneUrl(): Promise<string> {
  const server = net.createServer();
  const port = await listen(server);
  await new Promise((resolve) => server.close(resolve));
  return `http://127.0.0.1:${port}`;
}

/** A proxy that can hang or be gone. */
export async function proxy(target: string) {
  const { port, hostname } = new URL(target);
  const sockets = new Set<net.Socket>();
  let hanging = false;
  const accept = (client: net.Socket) => {
    const upstream = net.connect(Number(port), hostname);
    for (const [from, to] of [
      [client, upstream],
      [upstream, client],
    ] as const) {
      sockets.add(from);
      from.on('data', (data) => {
        if (!hanging) to.write(data);
      });
      from.on('error', () => undefined); // the other side ends it
      from.on('close', () => {
        sockets.delete(from);
        to.destroy();
      });
    }
  };
  let server = net.createServer(accept);
  const at = await listen(server);
  const proxied = {
    url: `http://127.0.0.1:${at}`,
    hang: () => {
      hanging = true;
    },
    gone: async () => {
      const closed = new Promise((resolve) => server.close(resolve));
      for (const socket of sockets) socket.destroy();
      await closed;
    },
    back: async () => {
      hanging = false;
      for (const socket of sockets) socket.destroy();
      if (server.listening) return;
      server = net.createServer(accept);
      await listen(server, at);
    },
  };
  after(() => proxied.gone());
  return proxied;
}

/** SLUICE_BINARY names another binary than that of `make test`. */
const { SLUICE_BINARY: binary = join(import.meta.dirname, '../../../../.bin/sluice'), ...environment } = process.env;

export const demoKey = 'slk_demo_0123456789abcdef0123456789abcdef';

/** Starts `sluice dev` and returns the URL of its check endpoint. */
export async function startSluice(): Promise<{ url: string; stop(): Promise<void> }> {
  // The user of Postgres may be unable to reach the checkout.
  const folder = await mkdtemp(join(tmpdir(), 'sluice-js-'));
  const any = '127.0.0.1:0';
  const child: ChildProcess = spawn(binary, ['dev'], {
    env: {
      ...environment,
      SLUICE_DATA_DIR: join(folder, 'data'),
      SLUICE_CHECK_ADDR: any,
      SLUICE_ADMIN_ADDR: any,
      SLUICE_METRICS_ADDR: any,
      SLUICE_GRPC_ADDR: any,
      SLUICE_STORE_BUDGET: '5s', // what happens without Redis has tests of its own
    },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const ended = new Promise<void>((resolve) => {
    child.once('exit', () => resolve());
    child.once('error', () => resolve());
  });
  const stop = async () => {
    child.kill('SIGTERM');
    await ended;
    await rm(folder, { recursive: true, force: true });
  };
  let log = '';
  const url = await new Promise<string | null>((resolve) => {
    for (const stream of [child.stdout, child.stderr]) {
      stream?.on('data', (text) => {
        log += text;
        const printed = /curl -i (http:\/\/[\d.:]+)\/v1\/check[\s\S]*Ctrl-C/.exec(log)?.[1];
        if (printed) resolve(printed);
      });
    }
    child.once('error', (error) => {
      log += error;
    });
    void ended.then(() => resolve(null));
  });
  if (url === null) {
    await stop();
    throw new Error(`${binary} dev does not start; \`make test\` builds it:\n${log}`);
  }
  return { url, stop };
}
