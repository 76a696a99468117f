import { mkdirSync, readdirSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { basename, dirname, join } from 'node:path';
import { expect, test } from '@playwright/test';

/*
 * Draws the dashboards of the chart from what a Prometheus answers to their own queries; scripts/dashboards.sh runs one beside a
 * benchmark. It is no Grafana: layout, titles, units, queries and legends are the files', lines and colours are not.
 */

const prometheus = process.env.PROMETHEUS ?? '';
const since = Number(process.env.SINCE);
const folder = '../deploy/chart/files/dashboards';
const uplot = dirname(createRequire(import.meta.url).resolve('uplot'));

interface Panel {
  title: string;
  description?: string;
  gridPos: { x: number; y: number; w: number; h: number };
  fieldConfig: { defaults: { unit: string } };
  targets: { expr: string; legendFormat: string }[];
}

interface Drawn {
  panel: Panel;
  times: number[];
  series: { name: string; values: (number | null)[] }[];
}

const step = 2;

async function range(query: string, start: number, end: number) {
  const parameters = new URLSearchParams({ query, start: `${start}`, end: `${end}`, step: `${step}` });
  const answer = await (await fetch(`${prometheus}/api/v1/query_range?${parameters}`)).json();
  expect(answer.status, `${query}: ${answer.error}`).toBe('success');
  return answer.data.result as { metric: Record<string, string>; values: [number, string][] }[];
}

/** The time in which processes were scraped: the benchmark builds them first. */
async function scraped(): Promise<[number, number]> {
  const now = Math.floor(Date.now() / 1000);
  const values = (await range('count(up == 1)', since, now))[0]?.values ?? [];
  return [values[0]?.[0] ?? since, values.at(-1)?.[0] ?? now];
}

async function ask(panel: Panel, start: number, end: number): Promise<Drawn> {
  const times = Array.from({ length: Math.floor((end - start) / step) + 1 }, (_, i) => start + i * step);
  const series: Drawn['series'] = [];
  for (const { expr, legendFormat } of panel.targets) {
    const query = expr.replaceAll('$__rate_interval', '10s').replaceAll('$tenant', '.*');
    for (const { metric, values } of await range(query, start, end)) {
      const at = new Map(values.map(([time, value]) => [time, Number(value)]));
      series.push({
        name: legendFormat.replace(/\{\{(\w+)\}\}/g, (_, label) => metric[label] ?? ''),
        values: times.map((time) => {
          const value = at.get(time);
          return value === undefined || Number.isNaN(value) ? null : value;
        }),
      });
    }
  }
  return { panel, times, series };
}

for (const file of readdirSync(folder)) {
  test(`${file} is drawn`, async ({ page }) => {
    const { title, description, panels } = JSON.parse(readFileSync(join(folder, file), 'utf8'));
    const [start, end] = await scraped();
    const drawn: Drawn[] = await Promise.all(panels.map((panel: Panel) => ask(panel, start, end)));
    const full = drawn.filter(({ series }) => series.length > 0).length;
    expect(full, 'panels with data').toBeGreaterThan(0);
    await page.setViewportSize({ width: 1280, height: 800 });
    await page.setContent(`<h1>${title}</h1><p>${description ?? ''}</p><main></main>`);
    await page.addStyleTag({ path: join(uplot, 'uPlot.min.css') });
    await page.addStyleTag({
      content: `
        body { margin: 24px; font: 13px/1.5 Inter, system-ui, sans-serif; color: #1d2433; background: #f7f8fa }
        h1 { margin: 0; font-size: 18px } p { margin: 0 0 12px; color: #5b6472 }
        main { display: grid; grid-template-columns: 1fr 1fr; gap: 12px }
        section { min-width: 0; padding: 12px; border: 1px solid #dfe3e9; border-radius: 8px; background: #fff }
        h2 { margin: 0 0 4px; font-size: 13px; font-weight: 600 }
        .empty { display: grid; height: 190px; place-items: center; color: #8a93a1 }
        ul { display: flex; flex-wrap: wrap; gap: 2px 12px; margin: 4px 0 0; padding: 0; list-style: none; font-size: 12px }
        i { display: inline-block; width: 10px; height: 3px; margin-right: 5px; vertical-align: middle }`,
    });
    await page.addScriptTag({ path: join(uplot, 'uPlot.iife.min.js') });
    await page.evaluate(draw, drawn);
    mkdirSync('../docs/images', { recursive: true });
    await page.screenshot({
      path: `../docs/images/dashboard-${basename(file, '.json').replace('sluice-', '')}.png`,
      fullPage: true,
    });
  });
}

/** Runs in the page. */
function draw(drawn: Drawn[]) {
  const colours = ['#2563eb', '#d97706', '#0d9488', '#be185d', '#7c3aed', '#65a30d', '#0891b2', '#b91c1c'];
  const short = (value: number, units: [number, string][]) => {
    for (const [size, unit] of units) {
      if (Math.abs(value) >= size) return `${Number((value / size).toPrecision(3))}${unit}`;
    }
    return `${Number(value.toPrecision(3))}`;
  };
  const written: Record<string, (value: number) => string> = {
    s: (value) =>
      short(value, [
        [1, ' s'],
        [1e-3, ' ms'],
        [1e-6, ' µs'],
      ]),
    bytes: (value) =>
      short(value, [
        [2 ** 30, ' GiB'],
        [2 ** 20, ' MiB'],
        [2 ** 10, ' KiB'],
      ]),
    reqps: (value) =>
      `${short(value, [
        [1e6, ' M'],
        [1e3, ' k'],
      ])}/s`,
    percentunit: (value) => `${Number((value * 100).toPrecision(3))} %`,
    short: (value) =>
      short(value, [
        [1e6, ' M'],
        [1e3, ' k'],
      ]),
  };
  const uPlot = (window as unknown as { uPlot: new (...args: unknown[]) => unknown }).uPlot;
  for (const { panel, times, series } of drawn) {
    const section = document.createElement('section');
    const { x, w, y, h } = panel.gridPos;
    section.style.gridColumn = `${x / 12 + 1} / span ${w / 12}`;
    section.style.gridRow = `${y / h + 1}`;
    const title = document.createElement('h2');
    title.textContent = panel.title;
    section.append(title);
    document.querySelector('main')?.append(section);
    if (series.length === 0) {
      const empty = document.createElement('div');
      empty.className = 'empty';
      empty.textContent = 'No data';
      section.append(empty);
      continue;
    }
    const unit = written[panel.fieldConfig.defaults.unit] ?? String;
    const values = (_: unknown, ticks: number[]) => ticks.map((tick) => (tick === 0 ? '0' : unit(tick)));
    const clock = (_: unknown, ticks: number[]) =>
      ticks.map((tick) => new Date(tick * 1000).toISOString().slice(11, 19));
    const axis = {
      stroke: '#5b6472',
      grid: { stroke: '#eceff3', width: 1 },
      ticks: { show: false },
      font: '11px sans-serif',
    };
    new uPlot(
      {
        width: section.clientWidth - 24,
        height: 190,
        legend: { show: false },
        cursor: { show: false },
        scales: { y: { range: (_: unknown, __: number, most: number) => [0, most > 0 ? most * 1.1 : 1] } },
        axes: [
          { ...axis, values: clock, size: 28 },
          { ...axis, values, size: 64 },
        ],
        series: [
          {},
          ...series.map((_, i) => ({
            stroke: colours[i % colours.length],
            width: 1,
            points: { show: false },
          })),
        ],
      },
      [times, ...series.map((one) => one.values)],
      section,
    );
    const legend = document.createElement('ul');
    series.forEach(({ name }, i) => {
      const item = document.createElement('li');
      const mark = document.createElement('i');
      mark.style.background = colours[i % colours.length] ?? '';
      item.append(mark, name);
      legend.append(item);
    });
    section.append(legend);
  }
}
