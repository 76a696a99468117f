import { Button, type ButtonProps } from '@mantine/core';
import { createLink } from '@tanstack/react-router';

type Props = ButtonProps & { ref?: React.Ref<HTMLAnchorElement>; 'aria-label'?: string };

export const LinkButton = createLink((props: Props) => <Button component="a" {...props} />);
