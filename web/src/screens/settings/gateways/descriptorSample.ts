import type { DescriptorMapping, SampleDescriptors } from '~/api/types';

interface DescriptorSampleDraft {
  domain: string;
  /** "key=value,key=value", one descriptor per line; or a request as JSON. */
  descriptors: string;
}

export const firstDescriptors = 'remote_address=203.0.113.9\nuser_id=42,path=/orders';

const limitOf = ({ requests_per_unit, requestsPerUnit, unit }: Record<string, never>) => ({
  requests_per_unit: requests_per_unit ?? requestsPerUnit ?? 0,
  unit,
});

const notLines = 'must be “key=value, key=value” on each line, or a request as JSON';

/** A domain in JSON replaces the typed one. */
export function descriptorsOf(
  { domain, descriptors }: DescriptorSampleDraft,
  mapping: DescriptorMapping | undefined,
): { sample?: SampleDescriptors; error?: string } {
  const text = descriptors.trim();
  const rest = mapping && { mapping };
  if (/^[{[]/.test(text)) {
    try {
      const read = JSON.parse(text);
      const list = Array.isArray(read) ? read : read.descriptors;
      if (!Array.isArray(list)) return { error: 'must have a list of descriptors' };
      const hits = Number(read.hits_addend ?? read.hitsAddend ?? 0);
      return {
        sample: {
          domain: read.domain ?? domain.trim(),
          ...(hits > 0 && { hits_addend: hits }),
          descriptors: list.map(({ entries, limit }) => ({ entries, ...(limit && { limit: limitOf(limit) }) })),
          ...rest,
        },
      };
    } catch (error) {
      return { error: `is not JSON: ${(error as Error).message}` };
    }
  }
  const lines = text.split('\n').filter((line) => line.trim());
  const list = lines.map((line) =>
    line.split(',').map((entry) => {
      const [key = '', ...value] = entry.split('=');
      return { key: key.trim(), value: value.join('=').trim() };
    }),
  );
  if (list.length === 0) return { error: notLines };
  const without = lines.find((_, index) => list[index]?.some(({ key }) => !key));
  if (without) return { error: `${notLines}; “${without.trim()}” is not` };
  return { sample: { domain: domain.trim(), descriptors: list.map((entries) => ({ entries })), ...rest } };
}
