import { QueryClient } from '@tanstack/react-query';
import { expect, test } from 'vitest';
import { newRouter } from '~/routes';
import { settingsSections } from '~/shell/navigation';
import { screens } from './screens';

const seldom = ['/forgot-password', '/reset-password', '/prove-address', '/invitation', '/sign-in-link', '/confirmed'];

test('index.html knows the code of every screen', () => {
  const { routesById } = newRouter(new QueryClient());
  const addresses = Object.values(routesById)
    .filter(({ children, fullPath }) => !children && !fullPath.endsWith('/') && !seldom.includes(fullPath))
    .map(({ fullPath }) => fullPath.replace(/\$\w+/g, '*'))
    .flatMap((address) =>
      address === '/t/*/settings/*' ? settingsSections.map(({ section }) => `/t/*/settings/${section}`) : [address],
    );
  expect(new Set(Object.keys(screens))).toEqual(new Set(addresses));

  const modules = Object.keys(import.meta.glob('../screens/**/*.tsx'));
  for (const module of Object.values(screens).flat()) expect(modules).toContain(`../screens/${module}.tsx`);
});
