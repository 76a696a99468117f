import type { QueryClient } from '@tanstack/react-query';
import {
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
import { ErrorState, LoadingLines } from '~/components/states';
import {
  confirmedSearch,
  findSearch,
  forgotSearch,
  newRuleSearch,
  overridesSearch,
  overviewSearch,
  parseSearch,
  plansSearch,
  profileSearch,
  replaysSearch,
  ruleSearch,
  rulesSearch,
  securitySearch,
  settingsSearch,
  signInSearch,
  stringifySearch,
  trySearch,
  userSearch,
  usersSearch,
  violationsSearch,
} from '~/search';
import { firstTenant, isIn, rememberTenant, signInTenant } from '~/session';
import { Shell } from '~/shell/Shell';
import { Start } from '~/shell/Start';
import { UndoDialog } from '~/shell/UndoDialog';

/* Every screen of the product and its address, on one page. Screens are loaded when they are visited. */

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

/** Leads to the sign-in of a tenant if one is known, so nothing that leads here needs to know one. */
const signIn = createRoute({
  getParentRoute: () => root,
  path: '/sign-in',
  validateSearch: signInSearch,
  beforeLoad: ({ search, location: { hash } }) => {
    const slug = signInTenant(search.next);
    if (slug) throw redirect({ to: '/sign-in/$slug', params: { slug }, search, hash, replace: true });
  },
  component: lazyRouteComponent(() => import('~/screens/sign-in/SignIn')),
});

/** The same page for a tenant. People who joined it by a link can sign in here only; everybody else can too. */
const signInTo = createRoute({
  getParentRoute: () => root,
  path: '/sign-in/$slug',
  validateSearch: signInSearch,
  component: lazyRouteComponent(() => import('~/screens/sign-in/SignIn')),
});

const forgotPassword = createRoute({
  getParentRoute: () => root,
  path: '/forgot-password',
  validateSearch: forgotSearch,
  component: lazyRouteComponent(() => import('~/screens/sign-in/ForgotPassword')),
});

const resetPassword = createRoute({
  getParentRoute: () => root,
  path: '/reset-password',
  component: lazyRouteComponent(() => import('~/screens/sign-in/ResetPassword')),
});

const proveAddress = createRoute({
  getParentRoute: () => root,
  path: '/prove-address',
  component: lazyRouteComponent(() => import('~/screens/sign-in/ProveAddress')),
});

/** The token is in the fragment, which browsers do not send. */
const invitation = createRoute({
  getParentRoute: () => root,
  path: '/invitation',
  component: lazyRouteComponent(() => import('~/screens/sign-in/Invitation')),
});

/** The token is in the fragment. */
const signInLink = createRoute({
  getParentRoute: () => root,
  path: '/sign-in-link',
  component: lazyRouteComponent(() => import('~/screens/sign-in/SignInLink')),
});

/** Where a provider sends people back to who signed in there again. */
const confirmed = createRoute({
  getParentRoute: () => root,
  path: '/confirmed',
  validateSearch: confirmedSearch,
  component: lazyRouteComponent(() => import('~/screens/sign-in/Confirmed')),
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

const profile = createRoute({
  getParentRoute: () => shell,
  path: '/profile',
  validateSearch: profileSearch,
  component: lazyRouteComponent(() => import('~/screens/profile/Profile')),
});

const platformTenants = createRoute({
  getParentRoute: () => shell,
  path: '/platform/tenants',
  validateSearch: findSearch,
  component: lazyRouteComponent(() => import('~/screens/platform/Tenants')),
});

const platformAccounts = createRoute({
  getParentRoute: () => shell,
  path: '/platform/accounts',
  validateSearch: findSearch,
  component: lazyRouteComponent(() => import('~/screens/platform/Accounts')),
});

const platformKeys = createRoute({
  getParentRoute: () => shell,
  path: '/platform/service-keys',
  component: lazyRouteComponent(() => import('~/screens/platform/ServiceKeys')),
});

const platformMail = createRoute({
  getParentRoute: () => shell,
  path: '/platform/mail',
  component: lazyRouteComponent(() => import('~/screens/platform/Mail')),
});

const platformJobs = createRoute({
  getParentRoute: () => shell,
  path: '/platform/jobs',
  component: lazyRouteComponent(() => import('~/screens/platform/Jobs')),
});

const platformSecurityLog = createRoute({
  getParentRoute: () => shell,
  path: '/platform/security-log',
  validateSearch: securitySearch,
  component: lazyRouteComponent(() => import('~/screens/platform/SecurityLog')),
});

const platformSignIn = createRoute({
  getParentRoute: () => shell,
  path: '/platform/sign-in',
  component: lazyRouteComponent(() => import('~/screens/platform/SignIn')),
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

const overview = createRoute({
  getParentRoute: () => tenant,
  path: '/overview',
  validateSearch: overviewSearch,
  component: lazyRouteComponent(() => import('~/screens/overview/Overview')),
});

const plans = createRoute({
  getParentRoute: () => tenant,
  path: '/plans',
  validateSearch: plansSearch,
  component: lazyRouteComponent(() => import('~/screens/plans/Plans')),
});

const rules = createRoute({
  getParentRoute: () => tenant,
  path: '/rules',
  validateSearch: rulesSearch,
  component: lazyRouteComponent(() => import('~/screens/rules/Rules')),
});

const newRule = createRoute({
  getParentRoute: () => tenant,
  path: '/rules/new',
  validateSearch: newRuleSearch,
  component: lazyRouteComponent(() => import('~/screens/rules/NewRule')),
});

const rule = createRoute({
  getParentRoute: () => tenant,
  path: '/rules/$rule',
  staticData: {
    first: (queries, { tenant = '', rule = '' }) => queries.prefetchQuery(ruleQuery(tenant, rule)),
  },
  validateSearch: ruleSearch,
  component: lazyRouteComponent(() => import('~/screens/rules/RulePage')),
});

const violations = createRoute({
  getParentRoute: () => tenant,
  path: '/violations',
  validateSearch: violationsSearch,
  component: lazyRouteComponent(() => import('~/screens/violations/Violations')),
});

const users = createRoute({
  getParentRoute: () => tenant,
  path: '/users',
  validateSearch: usersSearch,
  component: lazyRouteComponent(() => import('~/screens/users/Users')),
});

const overrides = createRoute({
  getParentRoute: () => tenant,
  path: '/overrides',
  validateSearch: overridesSearch,
  component: lazyRouteComponent(() => import('~/screens/overrides/Overrides')),
});

const user = createRoute({
  getParentRoute: () => tenant,
  path: '/users/$user',
  staticData: {
    first: (queries, { tenant = '', user = '' }) => {
      queries.prefetchQuery(userQuery(tenant, user));
      queries.prefetchQuery(rulesQuery(tenant));
    },
  },
  validateSearch: userSearch,
  component: lazyRouteComponent(() => import('~/screens/users/UserPage')),
});

const tryIt = createRoute({
  getParentRoute: () => tenant,
  path: '/try',
  validateSearch: trySearch,
  component: lazyRouteComponent(() => import('~/screens/try/TryIt')),
});

const replays = createRoute({
  getParentRoute: () => tenant,
  path: '/replays',
  validateSearch: replaysSearch,
  component: lazyRouteComponent(() => import('~/screens/replays/Replays')),
});

const replay = createRoute({
  getParentRoute: () => tenant,
  path: '/replays/$replay',
  component: lazyRouteComponent(() => import('~/screens/replays/ReplayPage')),
});

const settings = createRoute({
  getParentRoute: () => tenant,
  path: '/settings/$section',
  validateSearch: settingsSearch,
  component: lazyRouteComponent(() => import('~/screens/settings/Settings')),
});

const routeTree = root.addChildren([
  signIn,
  signInTo,
  forgotPassword,
  resetPassword,
  proveAddress,
  invitation,
  signInLink,
  confirmed,
  shell.addChildren([
    start,
    profile,
    platformTenants,
    platformAccounts,
    platformKeys,
    platformMail,
    platformJobs,
    platformSecurityLog,
    platformSignIn,
    tenant.addChildren([
      overview,
      plans,
      rules,
      newRule,
      rule,
      violations,
      users,
      user,
      overrides,
      tryIt,
      replays,
      replay,
      settings,
    ]),
  ]),
]);

export function newRouter(queries: QueryClient) {
  return createRouter({
    routeTree,
    context: { queries },
    parseSearch,
    stringifySearch,
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
    /** Begins to load the screen's first data, beside the session's request if the UI opens with it. */
    first?: (queries: QueryClient, params: Record<string, string | undefined>) => void;
  }
  interface Register {
    router: ReturnType<typeof newRouter>;
  }
}
