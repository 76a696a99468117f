import { Page } from '~/components/Page';

export default function Rules() {
  return <Page title="Rules">{null}</Page>;
}
