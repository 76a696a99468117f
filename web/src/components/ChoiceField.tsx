import { NativeSelect, Select } from '@mantine/core';

/** Of more than so many, one is found by typing. */
const few = 15;

/** Stands for '', which a searchable list takes for no choice. No plan and no rule is called that. */
const empty = ' ';

interface Props {
  label?: string;
  'aria-label'?: string;
  'data-autofocus'?: boolean;
  description?: string;
  error?: React.ReactNode;
  value: string;
  data: (string | { value: string; label: string })[];
  onChange: (value: string) => void;
}

/** A choice among things that a tenant has, such as plans: the browser's own list of a few, a searchable one of many. */
export function ChoiceField({ data, value, onChange, ...field }: Props) {
  if (data.length <= few) {
    return (
      <NativeSelect
        {...field}
        data={data}
        value={value}
        onChange={(event) => onChange(event.currentTarget.value)}
      />
    );
  }
  return (
    <Select
      {...field}
      searchable
      nothingFoundMessage="No results"
      data={data.map((one) => {
        const choice = typeof one === 'string' ? { value: one, label: one } : one;
        return { ...choice, value: choice.value || empty };
      })}
      value={value || empty}
      onChange={(chosen) => chosen !== null && onChange(chosen === empty ? '' : chosen)}
    />
  );
}
