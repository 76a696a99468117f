import { Page } from '~/components/Page';

export default function Invitation() {
  return <Page title="Invitation">{null}</Page>;
}
