import { Page } from '~/components/Page';

export default function Tenants() {
  return <Page title="Tenants">{null}</Page>;
}
