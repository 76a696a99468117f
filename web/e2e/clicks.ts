import { expect, type Page } from '@playwright/test';

interface Clicks {
  /** Fails if the pointer was pressed more often than that since counting began, and lists the presses. */
  expectAtMost(most: number): Promise<void>;
}

/** A double click counts as two. A page is counted once; sign in before. */
export async function countClicks(page: Page): Promise<Clicks> {
  const pressed: string[] = [];
  await page.exposeFunction('notePress', (what: string) => pressed.push(what));
  await page.addInitScript(notePresses);
  await page.evaluate(notePresses); // the page that is already open
  return {
    async expectAtMost(most) {
      await page.evaluate(() => 0); // what the page sent before this has arrived when it is answered
      process.stdout.write(`${pressed.length} clicks of at most ${most}: ${pressed.join(', ')}\n`);
      expect(pressed.length, pressed.join('\n')).toBeLessThanOrEqual(most);
    },
  };
}

function notePresses() {
  const { notePress } = window as unknown as { notePress: (what: string) => void };
  addEventListener(
    'pointerdown',
    ({ isTrusted, target }) => {
      if (!isTrusted || !(target instanceof Element)) return;
      const thing = target.closest('button, a, input, select, td, [role]') ?? target;
      const name = thing.getAttribute('aria-label') ?? thing.textContent?.trim() ?? '';
      notePress(`${thing.getAttribute('role') ?? thing.localName} “${name.slice(0, 60)}”`);
    },
    { capture: true },
  );
}
