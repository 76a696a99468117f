import type { QueryClient } from '@tanstack/react-query';
import {
  type AnyRoute,
  createRootRouteWithContext,
  createRoute,
  createRouter,
  lazyRouteComponent,
  Outlet,
  redirect,
} from '@tanstack/react-router';
import { AwayError } from '~/api/problem';
import { ruleQuery, rulesQuery, sessionQuery, tenantQuery } from '~/api/queries';
import { userQuery } from '~/api/user';
import { Page } from '~/components/Page';
import { ErrorState, LoadingLines, NoPermission } from '~/components/states';
import * as search from '~/search';
import { firstTenant, isIn, rememberTenant, signInTenant, useSession } from '~/session';
import { Shell } from '~/shell/Shell';
import { Start } from '~/shell/Start';
import { UndoDialog } from '~/shell/UndoDialog';

const root = createRootRouteWithContext<{ queries: QueryClient }>()({
  component: Root,
  notFoundComponent: () => <ErrorState error={new Error('This page does not exist.')} />,
});

function Root() {
  return (
    <>
      <Outlet />
      <UndoDialog />
    </>
  );
}

type First = (queries: QueryClient, params: Record<string, string | undefined>) => void;

function below<const Parent extends AnyRoute>(parent: Parent) {
  return <const Path extends string, Search = Record<never, never>>(
    path: Path,
    load: () => Promise<{ default: () => React.ReactNode }>,
    validateSearch: (raw: Record<string, unknown>) => Search = search.none as never,
    first?: First,
  ) =>
    createRoute({
      getParentRoute: () => parent,
      path,
      validateSearch,
      staticData: { first },
      component: lazyRouteComponent(load),
    });
}

/** Leads to the sign-in of a tenant if one is known. */
const signIn = createRoute({
  getParentRoute: () => root,
  path: '/sign-in',
  validateSearch: search.signInSearch,
  beforeLoad: ({ search, location: { hash } }) => {
    const slug = signInTenant(search.next);
    if (slug) throw redirect({ to: '/sign-in/$slug', params: { slug }, search, hash, replace: true });
  },
  component: lazyRouteComponent(() => import('~/screens/sign-in/SignIn')),
});

const shell = createRoute({
  getParentRoute: () => root,
  id: 'shell',
  beforeLoad: async ({ context, location }) => {
    const session = await context.queries.ensureQueryData(sessionQuery);
    if (!session) throw redirect({ to: '/sign-in', search: { next: location.href } });
    return { session };
  },
  component: Shell,
});

const start = createRoute({
  getParentRoute: () => shell,
  path: '/',
  beforeLoad: ({ context: { session } }) => {
    const tenant = firstTenant(session.memberships);
    if (tenant) throw redirect({ to: '/t/$tenant/overview', params: { tenant } });
    if (session.account.platform_admin) throw redirect({ to: '/platform/tenants' });
  },
  component: Start,
});

const platform = createRoute({ getParentRoute: () => shell, path: '/platform', component: Platform });

function Platform() {
  const { account } = useSession();
  if (account.platform_admin) return <Outlet />;
  return (
    <Page title="Platform">
      <NoPermission need="platform" />
    </Page>
  );
}

const platformStart = createRoute({
  getParentRoute: () => platform,
  path: '/',
  beforeLoad: () => {
    throw redirect({ to: '/platform/tenants' });
  },
});

const tenant = createRoute({
  getParentRoute: () => shell,
  path: '/t/$tenant',
  staticData: {
    first: (queries, { tenant = '' }) => queries.prefetchQuery(tenantQuery(tenant)),
  },
  onEnter: ({ params, context: { session } }) => {
    if (isIn(session, params.tenant)) rememberTenant(params.tenant);
  },
  component: OfTenant,
});

/** Remounts all screens per tenant, so that no state of one tenant is shown under another’s name. */
function OfTenant() {
  return <Outlet key={tenant.useParams().tenant} />;
}

const tenantStart = createRoute({
  getParentRoute: () => tenant,
  path: '/',
  beforeLoad: ({ params }) => {
    throw redirect({ to: '/t/$tenant/overview', params });
  },
});

const rule: First = (queries, { tenant = '', rule = '' }) => queries.prefetchQuery(ruleQuery(tenant, rule));

const user: First = (queries, { tenant = '', user = '' }) => {
  queries.prefetchQuery(userQuery(tenant, user));
  queries.prefetchQuery(rulesQuery(tenant));
};

const [ofRoot, ofShell, ofPlatform, ofTenant] = [below(root), below(shell), below(platform), below(tenant)];

const routeTree = root.addChildren([
  signIn,
  // People who joined a tenant by a link can sign in at its own page only.
  ofRoot('/sign-in/$slug', () => import('~/screens/sign-in/SignIn'), search.signInSearch),
  ofRoot('/forgot-password', () => import('~/screens/sign-in/ForgotPassword'), search.forgotSearch),
  // Tokens are in the fragment, which browsers do not send.
  ofRoot('/reset-password', () => import('~/screens/sign-in/ResetPassword')),
  ofRoot('/prove-address', () => import('~/screens/sign-in/ProveAddress')),
  ofRoot('/invitation', () => import('~/screens/sign-in/Invitation')),
  ofRoot('/sign-in-link', () => import('~/screens/sign-in/SignInLink')),
  ofRoot('/confirmed', () => import('~/screens/sign-in/Confirmed'), search.confirmedSearch),
  shell.addChildren([
    start,
    ofShell('/profile', () => import('~/screens/profile/Profile'), search.profileSearch),
    platform.addChildren([
      platformStart,
      ofPlatform('/tenants', () => import('~/screens/platform/Tenants'), search.findSearch),
      ofPlatform('/accounts', () => import('~/screens/platform/Accounts'), search.findSearch),
      ofPlatform('/service-keys', () => import('~/screens/platform/ServiceKeys')),
      ofPlatform('/mail', () => import('~/screens/platform/Mail')),
      ofPlatform('/jobs', () => import('~/screens/platform/Jobs')),
      ofPlatform('/security-log', () => import('~/screens/platform/SecurityLog'), search.securitySearch),
      ofPlatform('/sign-in', () => import('~/screens/platform/SignIn')),
    ]),
    tenant.addChildren([
      tenantStart,
      ofTenant('/overview', () => import('~/screens/overview/Overview'), search.overviewSearch),
      ofTenant('/plans', () => import('~/screens/plans/Plans'), search.plansSearch),
      ofTenant('/rules', () => import('~/screens/rules/Rules'), search.rulesSearch),
      ofTenant('/rules/new', () => import('~/screens/rules/NewRule'), search.newRuleSearch),
      ofTenant('/rules/$rule', () => import('~/screens/rules/RulePage'), search.ruleSearch, rule),
      ofTenant('/violations', () => import('~/screens/violations/Violations'), search.violationsSearch),
      ofTenant('/users', () => import('~/screens/users/Users'), search.usersSearch),
      ofTenant('/users/$user', () => import('~/screens/users/UserPage'), search.userSearch, user),
      ofTenant('/overrides', () => import('~/screens/overrides/Overrides'), search.overridesSearch),
      ofTenant('/try', () => import('~/screens/try/TryIt'), search.trySearch),
      ofTenant('/replays', () => import('~/screens/replays/Replays'), search.replaysSearch),
      ofTenant('/replays/$replay', () => import('~/screens/replays/ReplayPage')),
      ofTenant('/settings/$section', () => import('~/screens/settings/Settings'), search.settingsSearch),
    ]),
  ]),
]);

export function newRouter(queries: QueryClient) {
  return createRouter({
    routeTree,
    context: { queries },
    parseSearch: search.parseSearch,
    stringifySearch: search.stringifySearch,
    search: { strict: true }, // only what a screen's own function lets through
    defaultPreload: 'intent',
    scrollRestoration: true,
    defaultPendingComponent: LoadingLines,
    defaultErrorComponent: ({ error, reset }) => (
      <ErrorState error={error} onRetry={error instanceof AwayError ? () => location.reload() : reset} />
    ),
  });
}

declare module '@tanstack/react-router' {
  interface StaticDataRouteOption {
    /** Begins to load the screen's first data beside the session. */
    first?: First;
  }
  interface Register {
    router: ReturnType<typeof newRouter>;
  }
}
