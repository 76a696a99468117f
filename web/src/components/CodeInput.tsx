import { TextInput } from '@mantine/core';

interface Props {
  value: string;
  onChange: (code: string) => void;
  error?: string;
  autoFocus?: boolean;
  /** Recovery codes are refused while the factor is being set up. */
  appOnly?: boolean;
}

export function CodeInput({ value, onChange, error, autoFocus, appOnly }: Props) {
  return (
    <TextInput
      label="Code"
      description={appOnly ? 'The six digits that your app shows' : 'From your app, or a recovery code'}
      name="code"
      autoComplete="one-time-code"
      inputMode={appOnly ? 'numeric' : undefined}
      autoCapitalize="characters"
      spellCheck={false}
      maxLength={64}
      autoFocus={autoFocus}
      data-autofocus={autoFocus || undefined}
      required
      value={value}
      error={error && `The code ${error}`}
      onChange={(event) => onChange(event.currentTarget.value)}
    />
  );
}
