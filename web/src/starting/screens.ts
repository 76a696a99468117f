/**
 * The modules, below src/screens, of the screens that people have bookmarks and links to, by address; * is any one part
 * of
 * it. index.html asks for their code beside the entry.
 */
export const screens: Record<string, string[]> = {
  '/t/*/overview': ['overview/Overview'],
  '/t/*/plans': ['plans/Plans'],
  '/t/*/rules': ['rules/Rules'],
  '/t/*/rules/new': ['rules/NewRule'],
  '/t/*/rules/*': ['rules/RulePage'],
  '/t/*/violations': ['violations/Violations'],
  '/t/*/users': ['users/Users'],
  '/t/*/users/*': ['users/UserPage'],
  '/t/*/overrides': ['overrides/Overrides'],
  '/t/*/try': ['try/TryIt'],
  '/t/*/replays': ['replays/Replays'],
  '/t/*/replays/*': ['replays/ReplayPage'],
  '/t/*/settings/keys': ['settings/Settings', 'settings/keys/Keys'],
  '/t/*/settings/members': ['settings/Settings', 'settings/members/Members'],
  '/t/*/settings/alerts': ['settings/Settings', 'settings/alerts/Alerts'],
  '/t/*/settings/gateways': ['settings/Settings', 'settings/gateways/Gateways'],
  '/t/*/settings/tenant': ['settings/Settings', 'settings/tenant/TenantSettings'],
  '/t/*/settings/import-export': ['settings/Settings', 'settings/config/ImportExport'],
  '/t/*/settings/audit': ['settings/Settings', 'settings/audit/Audit'],
  '/t/*/settings/security': ['settings/Settings', 'settings/security/SecurityLog'],
  '/platform/tenants': ['platform/Tenants'],
  '/platform/accounts': ['platform/Accounts'],
  '/platform/service-keys': ['platform/ServiceKeys'],
  '/platform/mail': ['platform/Mail'],
  '/platform/jobs': ['platform/Jobs'],
  '/platform/security-log': ['platform/SecurityLog'],
  '/platform/sign-in': ['platform/SignIn'],
  '/profile': ['profile/Profile'],
  '/sign-in': ['sign-in/SignIn'],
  '/sign-in/*': ['sign-in/SignIn'],
};
