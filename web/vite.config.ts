import { readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import react from '@vitejs/plugin-react';
import type { Plugin, Rolldown } from 'vite';
import { defineConfig } from 'vitest/config';
import { headings } from './src/headings.ts';
import { screens } from './src/starting/screens.ts';

/**
 * Writes x.js.gz instead of x.js: the server compresses nothing while somebody waits, and the program is smaller.
 * Brotli would make the image 0.6 MB larger, and browsers accept it over TLS only.
 */
function compress(): Plugin {
  return {
    name: 'compress',
    apply: 'build',
    writeBundle({ dir = 'dist' }) {
      for (const name of readdirSync(dir, { recursive: true, encoding: 'utf8' })) {
        if (/\.(js|css|svg)$/.test(name)) {
          const file = join(dir, name);
          const text = readFileSync(file);
          writeFileSync(`${file}.gz`, gzipSync(text, { level: 9 }));
          rmSync(file);
        }
      }
    },
  };
}

/** Builds with the styles of the components that are used. All of Mantine's would be four fifths of the CSS. */
function usedStyles(): Plugin {
  const styles = join(import.meta.dirname, 'node_modules/@mantine/core/styles');
  const always = ['baseline', 'default-css-variables', 'global'];
  return {
    name: 'used-styles',
    apply: 'build',
    enforce: 'pre',
    load(id) {
      if (!id.endsWith('/@mantine/core/styles.layer.css')) return null;
      return always.map((name) => readFileSync(join(styles, `${name}.layer.css`), 'utf8')).join('\n');
    },
    transform(code, id) {
      const [, name] = /\/@mantine\/core\/esm\/.*\/(\w+)\.module\.mjs$/.exec(id) ?? [];
      return name && { code: `import '@mantine/core/styles/${name}.layer.css';\n${code}`, map: null };
    },
  };
}

/**
 * The files with the code of the screens, without the entry, and for each address the indices of its own in that list.
 */
function codeOf(bundle: Rolldown.OutputBundle): {
  files: string[];
  of: [address: string, places: number[]][];
} {
  const chunks = Object.values(bundle).filter((one) => one.type === 'chunk');
  const withImports = (chunk: Rolldown.OutputChunk | undefined, found: Set<string>): Set<string> => {
    if (!chunk || chunk.isEntry || found.has(chunk.fileName)) return found;
    found.add(chunk.fileName);
    for (const name of chunk.imports) {
      withImports(
        chunks.find(({ fileName }) => fileName === name),
        found,
      );
    }
    return found;
  };
  const chunkOf = (module: string) =>
    chunks.find(({ facadeModuleId }) => facadeModuleId?.endsWith(`/src/screens/${module}.tsx`));
  const namesOf = (modules: string[]) => [
    ...modules.reduce((found, module) => withImports(chunkOf(module), found), new Set<string>()),
  ];
  const named = Object.entries(screens).map(([address, modules]) => [address, namesOf(modules)] as const);
  const files = [...new Set(named.flatMap(([, names]) => names))];
  return { files, of: named.map(([address, names]) => [address, names.map((name) => files.indexOf(name))]) };
}

/**
 * Puts into index.html the content before everything else arrives: the colours, the heading of the screen, and the
 * script that finds it and asks for the screen's code. All other styles are linked below that, because content above a
 * link in the body is drawn without waiting for it. The entry waits for it.
 */
function starting(): Plugin {
  const read = (name: string) => readFileSync(join(import.meta.dirname, 'src', name), 'utf8');
  return {
    name: 'starting',
    transformIndexHtml: {
      order: 'post',
      handler(html, { path, bundle = {} }) {
        if (path !== '/index.html') return html;
        const styles = read('theme/tokens.css') + read('starting/starting.css');
        const script = read('starting/starting.js')
          .replace('HEADINGS', () => JSON.stringify(headings))
          .replace('CODE', () => JSON.stringify(codeOf(bundle)));
        const [link = ''] = /\s*<link rel="stylesheet".*?>/.exec(html) ?? [];
        return html
          .replace(link, '')
          .replace('<style></style>', () => `<style>${styles.replace(/\/\*.*?\*\//gs, '')}</style>`)
          .replace('<script></script>', () => `<script>${script}</script>${link}`);
      },
    },
  };
}

export default defineConfig({
  plugins: [react(), usedStyles(), starting(), compress()],
  resolve: { alias: { '~': join(import.meta.dirname, 'src') } },
  build: {
    assetsInlineLimit: 0, // the content security policy allows no data: but images
    modulePreload: { polyfill: false },
    chunkSizeWarningLimit: 900, // the API reference
    cssCodeSplit: false, // 25 kB in one request, instead of a few kB in each of forty
    rolldownOptions: {
      input: ['index.html', 'reference.html'],
      output: {
        // A file per module that two screens share would be ninety requests for the first of them.
        codeSplitting: {
          groups: [
            // The imports of the UI's entry, without those of reference.html.
            {
              name: 'app',
              tags: ['$initial'],
              test: (id) => !/openapi-explorer|node_modules\/yaml|reference\.(html|ts)/.test(id),
            },
            { name: 'parts', minShareCount: 4 },
            { name: 'shared', minShareCount: 2, entriesAware: true, entriesAwareMergeThreshold: 20_000 },
          ],
        },
      },
    },
    manifest: true, // what the first load is made of; e2e/size.test.ts reads it
  },
  // `npm run dev` beside `make run`: edits appear at once, on its API and its cookie.
  // Screens show files of ../deploy/examples.
  server: {
    proxy: { '/api': process.env.SLUICE_ADMIN_URL ?? 'http://127.0.0.1:8081' },
    fs: { allow: ['..'] },
  },
  test: {
    environment: 'jsdom',
    include: ['src/**/*.test.{ts,tsx}'],
    globalSetup: ['test/description.ts'],
    setupFiles: ['test/setup.ts'],
    isolate: false, // loading React and Mantine for each file took longer than the tests; see test/setup.ts
    restoreMocks: true,
    // The machine may have other things to do; a hang still ends.
    testTimeout: 300_000,
    hookTimeout: 60_000,
  },
});
