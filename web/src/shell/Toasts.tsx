import { Notifications } from '@mantine/notifications';

/** Where toasts appear. Those that are shown before it is loaded wait for it. */
export default function Toasts() {
  return <Notifications position="bottom-right" containerWidth={380} />;
}
