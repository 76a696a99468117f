import { Page } from '~/components/Page';

export default function Overview() {
  return <Page title="Overview">{null}</Page>;
}
