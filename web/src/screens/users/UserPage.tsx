import { Page } from '~/components/Page';

export default function UserPage() {
  return <Page title="User">{null}</Page>;
}
