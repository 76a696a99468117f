/**
 * Measures sharing requests, and the client beside a bare request, as ratios in one run: `npm run bench`. The server is
 * a Sluice of its own, or the one at SLUICE_URL with the key SLUICE_KEY.
 */
import { Sluice } from '../src/index.js';
import { demoKey, startSluice } from './server.js';

const callers = 64;
const round = 500; // ms
const rounds = 7;

const { SLUICE_URL: given, SLUICE_KEY: key = demoKey } = process.env;
const sluice = given ? { url: given, stop: async () => undefined } : await startSluice();
try {
  const shared = new Sluice({ url: sluice.url, key, timeout: 10_000 });
  const unbatched = new Sluice({ url: sluice.url, key, timeout: 10_000, batch: false });
  const look = (caller: number) => ({ userId: `bench-${caller}`, endpoint: '/api/search', cost: 0 });
  const asked = (limits: Sluice) => async (caller: number) => {
    const { source, error } = await limits.check(look(caller));
    if (source !== 'server') throw new Error(`the decision is from ${source}`, { cause: error });
  };
  const bare = async (caller: number) => {
    const answer = await fetch(`${sluice.url}/v1/check`, {
      method: 'POST',
      headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
      body: `{"user_id":"bench-${caller}","endpoint":"/api/search","cost":0}`,
    });
    await answer.arrayBuffer();
  };
  const sides = [
    { callers, call: asked(unbatched), rates: [] as number[] },
    { callers, call: asked(shared), rates: [] as number[] },
    { callers: 1, call: bare, rates: [] as number[] },
    { callers: 1, call: asked(shared), rates: [] as number[] },
  ];
  for (let i = 0; i <= rounds; i++) {
    for (const side of sides) {
      const rate = await closedLoop(side.callers, side.call);
      if (i > 0) side.rates.push(rate); // the first warms up
    }
  }
  const [u, s, b, l] = sides.map(({ rates }) => median(rates)) as [number, number, number, number];
  const ratio = median(sides[1]?.rates.map((rate, i) => rate / (sides[0]?.rates[i] ?? 1)) ?? []);
  const [alone, added] = [1e6 / b, 1e6 / l].map((micros) => `${micros.toFixed(0)} µs`);
  const lines = [
    `${callers} concurrent checks: ${u.toFixed(0)}/s unbatched, ${s.toFixed(0)}/s coalesced, ratio ${ratio.toFixed(2)}`,
    `a lone check: ${alone} bare, ${added} with the client, ratio ${(b / l).toFixed(2)}`,
  ];
  process.stdout.write(`${lines.join('\n')}\n`);
} finally {
  await sluice.stop();
}

async function closedLoop(n: number, call: (caller: number) => Promise<void>): Promise<number> {
  const began = performance.now();
  let calls = 0;
  await Promise.all(
    Array.from({ length: n }, async (_, caller) => {
      for (; performance.now() - began < round; calls++) await call(caller);
    }),
  );
  return calls / ((performance.now() - began) / 1000);
}

function median(values: number[]): number {
  return values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)] ?? 0;
}
