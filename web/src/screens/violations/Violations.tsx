import { Page } from '~/components/Page';

export default function Violations() {
  return <Page title="Violations">{null}</Page>;
}
