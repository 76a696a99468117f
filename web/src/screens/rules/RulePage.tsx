import { Page } from '~/components/Page';

export default function RulePage() {
  return <Page title="Rule">{null}</Page>;
}
