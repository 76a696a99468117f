import { Page } from '~/components/Page';

export default function Accounts() {
  return <Page title="Accounts">{null}</Page>;
}
