import { Page } from '~/components/Page';

export default function Plans() {
  return <Page title="Plan tiers">{null}</Page>;
}
