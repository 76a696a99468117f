import { Sluice } from '@sluicegate/client'; // npm install PATH/TO/sluicegate-client-0.1.0.tgz

// One for the whole process.
const limits = new Sluice({ url: "http://127.0.0.1:8080", key: process.env.SLUICE_KEY ?? '' });
const decision = await limits.check({
  userId: "42",
  endpoint: "/api/reports",
});
if (decision.allowed) {
  console.log('allowed');
} else {
  console.log('denied, wait', decision.retryAfterMs, 'ms');
}
