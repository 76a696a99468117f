import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import { test } from 'node:test';

test('CommonJS loads every entry', () => {
  const require = createRequire(import.meta.url);
  assert.equal(typeof require('@sluicegate/client').Sluice, 'function');
  assert.equal(typeof require('@sluicegate/client/express').limit, 'function');
  assert.equal(typeof require('@sluicegate/client/express-rate-limit').SluiceStore, 'function');
});
