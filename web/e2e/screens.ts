import { demo } from './sluice';

/** Every screen with an address that shows something on the demo data. */
export const screens = [
  { name: 'overview', path: `/t/${demo.tenant}/overview` },
  { name: 'plans', path: `/t/${demo.tenant}/plans` },
  { name: 'rules', path: `/t/${demo.tenant}/rules` },
  { name: 'rule', path: `/t/${demo.tenant}/rules/1` },
  { name: 'new-rule', path: `/t/${demo.tenant}/rules/new` },
  { name: 'violations', path: `/t/${demo.tenant}/violations` },
  { name: 'users', path: `/t/${demo.tenant}/users` },
  { name: 'user', path: `/t/${demo.tenant}/users/42` },
  { name: 'overrides', path: `/t/${demo.tenant}/overrides` },
  { name: 'try', path: `/t/${demo.tenant}/try` },
  {
    name: 'try-asked',
    path: `/t/${demo.tenant}/try?user=42&method=GET&endpoint=/api/reports&ip=203.0.113.9`,
  },
  { name: 'settings-keys', path: `/t/${demo.tenant}/settings/keys` },
  { name: 'settings-members', path: `/t/${demo.tenant}/settings/members` },
  { name: 'settings-alerts', path: `/t/${demo.tenant}/settings/alerts` },
  { name: 'settings-gateways', path: `/t/${demo.tenant}/settings/gateways` },
  { name: 'settings-gateways-json', path: `/t/${demo.tenant}/settings/gateways?view=json` },
  { name: 'settings-gateways-envoy', path: `/t/${demo.tenant}/settings/gateways?gateway=envoy` },
  { name: 'settings-tenant', path: `/t/${demo.tenant}/settings/tenant` },
  { name: 'settings-import-export', path: `/t/${demo.tenant}/settings/import-export` },
  { name: 'settings-audit', path: `/t/${demo.tenant}/settings/audit` },
  { name: 'settings-audit-entry', path: `/t/${demo.tenant}/settings/audit?entry=15` },
  { name: 'platform-tenants', path: '/platform/tenants' },
  { name: 'platform-accounts', path: '/platform/accounts' },
  { name: 'platform-service-keys', path: '/platform/service-keys' },
  { name: 'platform-mail', path: '/platform/mail' },
  { name: 'profile', path: '/profile' },
];
