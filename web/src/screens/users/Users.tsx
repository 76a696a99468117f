import { Page } from '~/components/Page';

export default function Users() {
  return <Page title="Users">{null}</Page>;
}
