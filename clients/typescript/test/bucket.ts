/** A worker that serves checks while the event loop of a test is stalled. */
import http from 'node:http';
import type { AddressInfo } from 'node:net';
import { parentPort, workerData } from 'node:worker_threads';

let tokens: number = workerData;
const take = () =>
  tokens-- > 0
    ? { status: 200, allowed: true }
    : { status: 429, allowed: false, reason: 'limit_exceeded', retry_after_ms: 60_000 };

const server = http.createServer(async (request, response) => {
  let body = '';
  for await (const chunk of request) body += chunk;
  const { checks } = JSON.parse(body);
  const answer = checks ? { status: 200, results: checks.map(take) } : take();
  response.writeHead(answer.status, { 'content-type': 'application/json' });
  response.end(JSON.stringify(answer));
});
server.listen(0, '127.0.0.1', () => {
  parentPort?.postMessage(`http://127.0.0.1:${(server.address() as AddressInfo).port}`);
});
