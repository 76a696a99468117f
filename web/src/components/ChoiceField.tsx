import { NativeSelect, Select } from '@mantine/core';

const few = 15;

/** Stands for '', which a searchable list takes for no choice. */
const empty = ' ';

type Choice = string | { value: string; label: string };

interface Props {
  label?: string;
  'aria-label'?: string;
  'data-autofocus'?: boolean;
  description?: string;
  error?: React.ReactNode;
  disabled?: boolean;
  value: string;
  data: (Choice | { group: string; items: Choice[] })[];
  onChange: (value: string) => void;
}

/** The browser's own list of a few choices, a searchable one of many. */
export function ChoiceField({ data, value, onChange, ...field }: Props) {
  if (data.flatMap((one) => (isGroup(one) ? one.items : one)).length <= few) {
    return (
      <NativeSelect {...field} data={data} value={value} onChange={(event) => onChange(event.currentTarget.value)} />
    );
  }
  return (
    <Select
      {...field}
      searchable
      nothingFoundMessage="No results"
      data={data.map((one) => (isGroup(one) ? { ...one, items: one.items.map(searchable) } : searchable(one)))}
      value={value || empty}
      onChange={(chosen) => chosen !== null && onChange(chosen === empty ? '' : chosen)}
    />
  );
}

function isGroup(one: Props['data'][number]): one is { group: string; items: Choice[] } {
  return typeof one !== 'string' && 'group' in one;
}

function searchable(one: Choice) {
  const choice = typeof one === 'string' ? { value: one, label: one } : one;
  return { ...choice, value: choice.value || empty };
}
