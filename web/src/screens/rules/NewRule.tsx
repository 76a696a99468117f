import { Page } from '~/components/Page';

export default function NewRule() {
  return <Page title="New rule">{null}</Page>;
}
