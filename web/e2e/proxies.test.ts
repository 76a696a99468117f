import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmod, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type Page, request } from '@playwright/test';
import { expect, signIn, test } from './browser';
import { until } from './sluice';

const proxies = {
  nginx: {
    files: ['sluice.conf'],
    more: {
      'nginx.conf': `daemon off; pid nginx.pid; error_log stderr; worker_processes 1; events {}
        http { access_log off; client_body_temp_path b; proxy_temp_path p; fastcgi_temp_path f; uwsgi_temp_path u;
        scgi_temp_path s; include sluice.conf; }`,
    },
    command: (folder: string) => ['nginx', '-p', folder, '-c', 'nginx.conf', '-e', 'stderr'],
  },
  Caddy: {
    files: ['Caddyfile'],
    more: {},
    command: () => ['caddy', 'run', '--adapter', 'caddyfile', '--config', 'Caddyfile'],
  },
  HAProxy: {
    files: ['haproxy.cfg', 'sluice.lua'],
    more: {},
    command: () => ['haproxy', '-db', '-f', 'haproxy.cfg'],
  },
};

/** A port that the system hands out to nobody: it does so from 32768 on. */
async function freePort(other?: number): Promise<number> {
  for (;;) {
    const port = 10_000 + Math.floor(Math.random() * 20_000);
    const server = createServer();
    const isFree = new Promise<boolean>((resolve) => {
      server.once('listening', () => server.close(() => resolve(true))).once('error', () => resolve(false));
    });
    server.listen(port, '127.0.0.1');
    if ((await isFree) && port !== other) return port;
  }
}

async function prepare(page: Page): Promise<string> {
  const create = async (path: string, data: object) => {
    const answer = await page.request.post(`/api/v1/${path}`, { data });
    expect(answer.ok(), await answer.text()).toBe(true);
    return answer.json();
  };
  await create('tenants', { slug: 'proxied', name: 'Proxied' });
  for (const key_pattern of ['user:{user_id}', 'ip:{ip}']) {
    await create('tenants/proxied/rules', { key_pattern, rate_per_second: 1, rate_unit: 'hour', burst_capacity: 2 });
  }
  await page.goto('/t/proxied/settings/gateways');
  const mapping = {
    user: { header: 'X-User', plain: true },
    plan: { header: 'X-Plan' },
    endpoint: { header: 'X-Original-Uri' },
    address: { trusted_hops: 1 },
  };
  await page.getByLabel('JSON').fill(JSON.stringify(mapping));
  await page.getByRole('button', { name: 'Save' }).click();
  await expect(page.getByText('Mapping saved.', { exact: false })).toBeVisible();
  return (await create('tenants/proxied/api-keys', { name: 'proxy', permissions: ['check'] })).secret;
}

test('the files below a saved mapping make nginx, Caddy and HAProxy limit what it reads', async ({ page, sluice }) => {
  await signIn(page);
  const key = await prepare(page);
  const app: Server = createServer((_, response) => response.end()).listen(0, '127.0.0.1');
  await once(app, 'listening');
  const running: ChildProcess[] = [];
  const folders: string[] = [];
  try {
    for (const [name, { files, more, command }] of Object.entries(proxies)) {
      await page.getByRole('radiogroup', { name: 'Proxy' }).getByText(name, { exact: true }).click();
      const visitors = await freePort();
      const inner = await freePort(visitors);
      const folder = await mkdtemp(join(tmpdir(), 'sluice-proxy-'));
      folders.push(folder);
      await chmod(folder, 0o755); // nginx's workers are another user
      for (const file of files) {
        const shown = (await page.getByRole('region', { name: file }).locator('pre').textContent()) ?? '';
        if (file !== 'sluice.lua') expect(shown).toContain(new URL(sluice.checkUrl).host); // which asks haproxy.cfg
        const code = shown
          .replaceAll('slk_YOUR_KEY', key)
          .replaceAll('127.0.0.1:3000', `127.0.0.1:${(app.address() as AddressInfo).port}`)
          .replaceAll('127.0.0.1:8000', `127.0.0.1:${visitors}`)
          .replaceAll('127.0.0.1:8001', `127.0.0.1:${inner}`)
          .replaceAll(/\b[12]00ms\b/g, '20s') // the machine may be busy
          .replace('timeout = 300,', 'timeout = 30000,');
        // Several Caddys run at once in the tests.
        await writeFile(join(folder, file), file === 'Caddyfile' ? `{\n\tadmin off\n}\n${code}` : code);
      }
      for (const [file, text] of Object.entries(more)) await writeFile(join(folder, file), text);
      const [program = '', ...words] = command(folder);
      let said = '';
      const proxy = spawn(program, words, { cwd: folder, env: { PATH: process.env.PATH, HOME: folder } });
      for (const stream of [proxy.stdout, proxy.stderr]) stream?.on('data', (text) => (said += text));
      proxy.on('error', (error) => (said += error));
      running.push(proxy);
      const visitor = await request.newContext({ baseURL: `http://127.0.0.1:${visitors}` });
      const answers = () => visitor.get('/').then((answer) => answer.status() !== 500);
      await until(() => answers().catch(() => false)).catch((error) => {
        throw new Error(`${name} does not answer: ${error}\n${said}`);
      });
      let last = 0;
      const ask = async (user?: string, address = `198.51.${running.length}.${++last}`) => {
        const headers = {
          'X-Forwarded-For': address,
          'X-Plan': 'none',
          ...(user && { 'X-User': `${user} of ${name}` }),
        };
        return (await visitor.get('/', { headers })).status();
      };
      const ofUsers = [await ask('ada'), await ask('ada'), await ask('ada'), await ask('grace')];
      expect(ofUsers, `${name}, users\n${said}`).toEqual([200, 200, 429, 200]);
      const near = `198.51.${running.length}.250`;
      const ofOne = [await ask(undefined, near), await ask(undefined, near), await ask(undefined, near), await ask()];
      expect(ofOne, `${name}, addresses behind a proxy\n${said}`).toEqual([200, 200, 429, 200]);
      await visitor.dispose();
    }
  } finally {
    for (const proxy of running) {
      if (proxy.exitCode === null && proxy.kill()) await once(proxy, 'exit');
    }
    app.close();
    for (const folder of folders) await rm(folder, { recursive: true, force: true });
  }
});
