import type { Page } from '@playwright/test';
import { expect } from './browser';
import { allowed, demo } from './sluice';

interface Overlay {
  name: string;
  path: string;
  open: (page: Page) => Promise<void>;
}

const at = (screen: string) => `/t/${demo.tenant}/${screen}`;

function dialog(name: string, screen: string, button: string | RegExp): Overlay {
  return { name, path: at(screen), open: (page) => press(page, button) };
}

async function press(page: Page, button: string | RegExp): Promise<void> {
  await page.getByRole('button', { name: button, exact: true }).first().click();
  await expect(page.getByRole('dialog').last()).toBeVisible();
}

/** Everything that opens above a screen: the palette, menus, panels and dialogs, alone and on top of each other. */
export const overlays: Overlay[] = [
  {
    name: 'palette',
    path: at('overview'),
    open: async (page) => {
      await page.keyboard.press('Control+k');
      await page.getByRole('combobox', { name: 'Search' }).fill('search');
      await expect(page.getByRole('option', { name: /api\/search/ }).first()).toBeVisible();
    },
  },
  {
    name: 'temporary-rule',
    path: at('violations?group=user&range=24h'),
    open: async (page) => {
      await page
        .getByRole('button', { name: /^Actions for / })
        .first()
        .click();
      await page.getByRole('menuitem', { name: /^Limit/ }).click();
      await expect(page.getByRole('dialog').getByLabel('Burst')).toBeVisible();
    },
  },
  {
    name: 'rule-for-a-time',
    path: at('violations?group=rule&range=24h'),
    open: async (page) => {
      await page
        .getByRole('button', { name: /^Actions for rule .*reports/ })
        .first()
        .click();
      await page.getByRole('menuitem', { name: /^Change limit/ }).click();
      await expect(page.getByRole('dialog').getByLabel('Burst')).toBeVisible();
    },
  },
  {
    name: 'violation',
    path: at('violations?range=24h'),
    open: async (page) => {
      await page.getByRole('table', { name: 'Violations' }).getByRole('link').first().click();
      await expect(page.getByRole('dialog', { name: 'Violation' })).toBeVisible();
    },
  },
  dialog('new-plan', 'plans', 'New plan'),
  dialog('add-rule', 'plans', 'Add rule'),
  {
    name: 'review',
    path: at('plans'),
    open: async (page) => {
      const cell = page.getByRole('row').nth(1).locator('td[data-plan="pro"]');
      await cell.click();
      await cell.getByLabel(/^Rate of/).fill('777/s');
      await page.keyboard.press('Enter');
      await press(page, 'Review changes');
      await expect(page.getByRole('dialog').getByText(/777 per second/)).toBeVisible();
    },
  },
  {
    name: 'replay-above-review',
    path: at('plans'),
    open: async (page) => {
      await overlay('review').open(page);
      await press(page, 'Replay all');
      await expect(page.getByRole('dialog', { name: 'Replay recorded checks' })).toBeVisible();
    },
  },
  {
    name: 'schedule',
    path: at('rules/1'),
    open: async (page) => {
      await page.getByLabel('Burst', { exact: true }).fill('4321');
      await press(page, 'Schedule');
    },
  },
  dialog('alert-on-a-rule', 'rules/1', 'Alert on this rule'),
  dialog('new-override', 'users/42', 'New override'),
  dialog('new-alert', 'settings/alerts', 'New alert'),
  dialog('new-key', 'settings/keys', 'Create key'),
  {
    name: 'invite-with-changes',
    path: at('settings/members'),
    open: async (page) => {
      await press(page, 'Invite');
      await page.getByLabel('E-mail').fill('grace@example.com');
      await page.keyboard.press('Escape');
      await expect(page.getByText('Discard your edits?')).toBeVisible();
    },
  },
  dialog('new-tenant', '../../platform/tenants', 'New tenant'),
  {
    name: 'silence-above-alert',
    path: at('settings/alerts'),
    open: async (page) => {
      await page
        .getByRole('row', { name: /Many denials/ })
        .first()
        .click();
      await press(page, 'Silence …'); // the list's have the alert's name
      await expect(page.getByRole('dialog', { name: /^Silence/ })).toBeVisible();
    },
  },
];

function overlay(name: string): Overlay {
  const found = overlays.find((one) => one.name === name);
  if (!found) throw new Error(`no overlay is called ${name}`);
  return found;
}

export async function furnish(page: Page): Promise<{ name: string; path: string }[]> {
  const post = async (path: string, data: object) => {
    const answer = await page.request.post(`/api/v1/tenants/${demo.tenant}/${path}`, { data });
    expect(answer.ok(), await answer.text()).toBe(true);
    return answer.json();
  };
  await post('alerts', {
    name: 'Many denials',
    rule_id: null,
    per: 'rule',
    threshold: 100,
    window_minutes: 5,
    url: `http://${allowed}:9/`,
  });
  const limit = { key_pattern: 'user:{user_id}', rate_per_second: 1000, burst_capacity: 5000 };
  const live = await post('rules', { ...limit, name: `tried ${Date.now()}` }); // a rule has one candidate
  const candidate = await post(`rules/${live.rule_id}/candidate`, { burst_capacity: 4000 });
  const replay = await post('replays', {
    remove: ['1'],
    since: new Date(Date.now() - 3_600_000).toISOString(),
    until: new Date().toISOString(),
  });
  return [
    { name: 'candidate', path: at(`rules/${candidate.rule_id}`) },
    { name: 'replay', path: at(`replays/${replay.replay_id}`) },
  ];
}
