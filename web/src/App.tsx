import { localStorageColorSchemeManager, MantineProvider } from '@mantine/core';
import { type QueryClient, QueryClientProvider } from '@tanstack/react-query';
import { RouterProvider } from '@tanstack/react-router';
import { later } from '~/components/later';
import { AwayBanner } from '~/shell/AwayBanner';
import { BusyBanner } from '~/shell/BusyBanner';
import { ProofDialog } from '~/shell/ProofDialog';
import type { newRouter } from './routes';
import { colorSchemeKey, theme } from './theme/theme';

const Toasts = later(() => import('~/shell/Toasts'));

const colorScheme = localStorageColorSchemeManager({ key: colorSchemeKey });

interface Props {
  queries: QueryClient;
  router: ReturnType<typeof newRouter>;
  /** Without layout, animations are off and nothing counts as out of view. */
  env?: 'test';
}

export function App({ queries, router, env }: Props) {
  return (
    <MantineProvider theme={theme} env={env} colorSchemeManager={colorScheme} defaultColorScheme="auto">
      <QueryClientProvider client={queries}>
        <AwayBanner />
        <BusyBanner />
        <RouterProvider router={router} />
        <ProofDialog />
        <Toasts />
      </QueryClientProvider>
    </MantineProvider>
  );
}
