import './theme/layers.css';
import '@fontsource-variable/inter/index.css';
import '@mantine/core/styles.layer.css';
import '@mantine/notifications/styles.layer.css';
import './theme/global.css';
import type { AnyRoute } from '@tanstack/react-router';
import { startTransition } from 'react';
import { createRoot } from 'react-dom/client';
import { newQueryClient } from '~/api/queries';
import { App } from './App';
import { newRouter } from './routes';

const queries = newQueryClient();
const router = newRouter(queries);
const root = document.getElementById('root');
if (!root) throw new Error('index.html has no root');

// The screen and its first data are loaded beside the session, not after it.
const routes: Record<string, AnyRoute> = router.routesById;
for (const { routeId, params } of router.matchRoutes(router.latestLocation)) {
  const { component, staticData } = routes[routeId]?.options ?? {};
  // A failure is shown by the router, which loads it again.
  component?.preload?.()?.catch(() => {});
  staticData?.first?.(queries, params);
}
// A transition draws the screen in steps, between which the browser can answer.
router.load().finally(() => startTransition(() => createRoot(root).render(<App queries={queries} router={router} />)));
