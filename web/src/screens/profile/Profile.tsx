import { Page } from '~/components/Page';

export default function Profile() {
  return <Page title="Profile">{null}</Page>;
}
