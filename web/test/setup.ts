import { notifications } from '@mantine/notifications';
import { cleanup, configure, prettyDOM } from '@testing-library/react';
import { afterAll, afterEach, expect, vi } from 'vitest';
import { broken } from './fake';

// A screen's code is loaded when it is visited, and the machine may have other things to do.
configure({
  asyncUtilTimeout: 60_000,
  // The DOM is printed when somebody reads the message, not at each poll of a find.
  getElementError(message, container) {
    const error = new Error();
    error.name = 'TestingLibraryElementError';
    const text = () => [message, prettyDOM(container)].filter(Boolean).join('\n\n');
    Object.defineProperty(error, 'message', { get: text, configurable: true });
    return error;
  },
});

window.matchMedia = (query: string) =>
  ({
    matches: false,
    media: query,
    addEventListener: () => undefined,
    removeEventListener: () => undefined,
    addListener: () => undefined,
    removeListener: () => undefined,
  }) as unknown as MediaQueryList;
window.ResizeObserver = class {
  observe() {}
  unobserve() {}
  disconnect() {}
};
// There is no layout: everything is in view.
window.IntersectionObserver = class {
  constructor(private readonly seen: (entries: { isIntersecting: boolean }[]) => void) {}
  observe() {
    this.seen([{ isIntersecting: true }]);
  }
  unobserve() {}
  disconnect() {}
} as unknown as typeof IntersectionObserver;
Object.defineProperty(document, 'fonts', { value: new EventTarget(), configurable: true });
Element.prototype.scrollIntoView = () => undefined;
window.scrollTo = () => undefined;

afterEach(() => {
  const mistakes = broken.splice(0);
  cleanup();
  vi.useRealTimers();
  notifications.clean();
  localStorage.clear();
  vi.unstubAllGlobals();
  expect([...new Set(mistakes)].join('\n'), 'answers that api/openapi.yaml does not know').toBe('');
});

// Files share a process, with React and Mantine, but each loads our own modules anew, with all they remember.
afterAll(() => {
  vi.resetModules();
});
