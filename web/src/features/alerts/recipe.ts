/** docs/violations.md shows the same. */
export const recipe = `import { createHmac, timingSafeEqual } from 'node:crypto';

// signature is the header Sluice-Signature: t=…,v1=…; body is the raw bytes.
function isFromSluice(secret, signature, body) {
  const { t, v1 = '' } = Object.fromEntries(signature.split(',').map((part) => part.split('=')));
  const expected = createHmac('sha256', secret).update(t + '.').update(body).digest('hex');
  const isFresh = Math.abs(Date.now() / 1000 - Number(t)) < 300;
  return isFresh && v1.length === expected.length && timingSafeEqual(Buffer.from(v1), Buffer.from(expected));
}
`;
