const hour = 3_600_000;
const day = 24 * hour;

export const lengths = [
  { value: '15m', label: '15 minutes', ms: hour / 4 },
  { value: '1h', label: '1 hour', ms: hour },
  { value: '4h', label: '4 hours', ms: 4 * hour },
  { value: '8h', label: '8 hours', ms: 8 * hour },
  { value: '1d', label: '1 day', ms: day },
  { value: '3d', label: '3 days', ms: 3 * day },
  { value: '7d', label: '7 days', ms: 7 * day },
  { value: '30d', label: '30 days', ms: 30 * day },
  { value: '90d', label: '90 days', ms: 90 * day },
];

export function lengthOf(value: string): { label: string; ms: number } {
  return lengths.find((one) => one.value === value) ?? { label: value, ms: Number.NaN };
}
