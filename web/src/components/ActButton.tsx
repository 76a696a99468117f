import { Button, type ButtonProps } from '@mantine/core';
import { useMutation } from '@tanstack/react-query';
import { failed } from './toast';

interface Props extends ButtonProps {
  act: () => Promise<unknown>;
  /** Says what did not happen, in the toast of an error. */
  failure: string;
  'aria-label'?: string;
}

export function ActButton({ act, failure, ...button }: Props) {
  const acting = useMutation({ mutationFn: act, onError: (error) => failed(failure, error) });
  return <Button variant="default" loading={acting.isPending} onClick={() => acting.mutate()} {...button} />;
}
