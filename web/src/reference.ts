import 'openapi-explorer/dist/browser/openapi-explorer.min.js';
import { parse } from 'yaml';

/* The page at /api/v1/docs. */

type Explorer = HTMLElement & { loadSpec(description: object): Promise<void> };
interface Operation {
  description?: string;
  'x-least-role'?: string;
}

const colors = {
  light: {
    bg: '#ffffff',
    text: '#1c2024',
    primary: '#2459cc',
    navBg: '#f5f6f8',
    navText: '#1c2024',
    hover: '#e6e8eb',
  },
  dark: {
    bg: '#17191e',
    text: '#e7eaee',
    primary: '#8baef8',
    navBg: '#0d0f12',
    navText: '#e7eaee',
    hover: '#262a31',
  },
};

async function show(): Promise<void> {
  const explorer = document.createElement('openapi-explorer') as Explorer;
  const dark = matchMedia('(prefers-color-scheme: dark)');
  const paint = () => {
    const { bg, text, primary, navBg, navText, hover } = colors[dark.matches ? 'dark' : 'light'];
    const attributes = {
      'bg-color': bg,
      'text-color': text,
      'primary-color': primary,
      'secondary-color': primary,
      'header-bg-color': navBg,
      'header-color': navText,
      'nav-bg-color': navBg,
      'nav-text-color': navText,
      'nav-hover-bg-color': hover,
      'nav-hover-text-color': navText,
    };
    for (const [name, color] of Object.entries(attributes)) explorer.setAttribute(name, color);
  };
  paint();
  dark.addEventListener('change', paint);
  // Requests would go out with the session of the reader, so the page only shows.
  for (const name of ['hide-console', 'hide-server-selection']) explorer.setAttribute(name, 'true');
  document.body.append(explorer);

  const description = parse(await (await fetch('/api/v1/openapi.yaml')).text());
  for (const path of Object.values<Record<string, Operation>>(description.paths)) {
    for (const operation of Object.values(path)) {
      const role = operation['x-least-role'];
      if (role) operation.description = `Who may call it: **${role}**\n\n${operation.description ?? ''}`;
    }
  }
  await explorer.loadSpec(description);
}

show();
