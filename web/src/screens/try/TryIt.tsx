import { Page } from '~/components/Page';

export default function TryIt() {
  return <Page title="Try it">{null}</Page>;
}
