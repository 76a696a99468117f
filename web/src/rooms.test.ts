import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join, relative, resolve } from 'node:path';
import { expect, test } from 'vitest';

const src = import.meta.dirname;

/**
 * Parts that two screens need move to features, components or domain, so that a screen can be changed by reading its
 * own folder.
 */
const rooms: Record<string, string[]> = {
  domain: ['api/types', 'api/problem', 'search'], // functions without React or requests
  api: ['domain', 'search'],
  charts: ['components/Outcome', 'domain', 'theme'],
  components: ['api', 'charts', 'domain', 'search', 'session'],
  features: ['api', 'charts', 'components', 'domain', 'search', 'session'],
  screens: ['api', 'charts', 'components', 'domain', 'features', 'headings', 'search', 'session', 'shell'],
  shell: ['api', 'components', 'domain', 'search', 'session'],
};

function roomOf(path: string): string {
  const [first = '', second = ''] = path.split('/');
  return first === 'screens' || first === 'features' ? `${first}/${second}` : first;
}

const files = readdirSync(src, { recursive: true, encoding: 'utf8' }).filter((file) => /\.tsx?$/.test(file));

function importsOf(file: string): string[] {
  const text = readFileSync(join(src, file), 'utf8');
  return [...text.matchAll(/(?:from|import)\s*\(?'([~.][^']*)'/g)]
    .map(([, to = '']) => (to.startsWith('~/') ? to.slice(2) : relative(src, resolve(src, dirname(file), to))))
    .filter((to) => !to.startsWith('..'));
}

test.each(Object.keys(rooms))('%s imports what its room allows', (room) => {
  const wrong = files
    .filter((file) => file.startsWith(`${room}/`) && !/\.test\.|schema\.d\.ts/.test(file))
    .flatMap((file) =>
      importsOf(file)
        .filter((to) => roomOf(to) !== roomOf(file))
        .filter((to) => !rooms[room]?.some((allowed) => to === allowed || to.startsWith(`${allowed}/`)))
        .map((to) => `${file} imports ${to}`),
    );
  expect(wrong).toEqual([]);
});

test('what a route shows is a screen', () => {
  const shown = [...readFileSync(join(src, 'routes.tsx'), 'utf8').matchAll(/import\('([^']+)'\)/g)];
  expect(shown.length).toBeGreaterThan(20);
  expect(shown.map(([, file]) => file).filter((file) => !file?.startsWith('~/screens/'))).toEqual([]);
});

const measuring = [
  'api/availability.ts',
  'api/client.ts',
  'api/clock.ts',
  'components/Announce.tsx',
  'features/alerts/recipe.ts', // code to copy
  'screens/users/level.ts',
  'screens/users/queries.ts', // the buckets' readAt
  'shell/BusyBanner.tsx',
];

test('no moment is of the browser’s clock, which can be wrong', () => {
  const reading = files
    .filter((file) => !/\.test\./.test(file))
    .filter((file) => /\bDate\.now\b|new Date\(\)/.test(readFileSync(join(src, file), 'utf8')));
  expect(reading.toSorted()).toEqual(measuring);
});
