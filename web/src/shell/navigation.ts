import {
  IconBolt,
  IconClock,
  IconHistory,
  IconKey,
  IconMail,
  IconOverview,
  IconPlans,
  IconRules,
  IconShield,
  IconSignIn,
  IconTenants,
  IconTry,
  IconUsers,
  IconViolations,
} from '~/components/icons';

export const tenantScreens = [
  { to: '/t/$tenant/overview', label: 'Overview', icon: IconOverview },
  { to: '/t/$tenant/plans', label: 'Plans', icon: IconPlans },
  { to: '/t/$tenant/rules', label: 'Rules', icon: IconRules },
  { to: '/t/$tenant/violations', label: 'Violations', icon: IconViolations },
  { to: '/t/$tenant/users', label: 'Users', icon: IconUsers },
  { to: '/t/$tenant/overrides', label: 'Overrides', icon: IconBolt },
  { to: '/t/$tenant/replays', label: 'Replays', icon: IconHistory },
  { to: '/t/$tenant/try', label: 'Try it', icon: IconTry },
] as const;

export const platformScreens = [
  { to: '/platform/tenants', label: 'Tenants', icon: IconTenants },
  { to: '/platform/accounts', label: 'Accounts', icon: IconUsers },
  { to: '/platform/service-keys', label: 'Service keys', icon: IconKey },
  { to: '/platform/mail', label: 'Mail', icon: IconMail },
  { to: '/platform/jobs', label: 'Jobs', icon: IconClock },
  { to: '/platform/security-log', label: 'Security log', icon: IconShield },
  { to: '/platform/sign-in', label: 'Sign-in', icon: IconSignIn },
] as const;

export const settingsSections = [
  { section: 'keys', label: 'API keys' },
  { section: 'members', label: 'Members' },
  { section: 'alerts', label: 'Alerts' },
  { section: 'gateways', label: 'Gateways' },
  { section: 'tenant', label: 'Tenant' },
  { section: 'import-export', label: 'Import and export' },
  { section: 'audit', label: 'Audit log' },
  { section: 'security', label: 'Security log' },
] as const;
