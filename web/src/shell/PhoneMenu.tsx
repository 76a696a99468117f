import { Drawer } from '@mantine/core';
import { Sidebar } from './Sidebar';

interface Props {
  opened: boolean;
  onClose: () => void;
  onFind: () => void;
}

export default function PhoneMenu({ opened, onClose, onFind }: Props) {
  return (
    <Drawer.Root opened={opened} onClose={onClose} size={260}>
      <Drawer.Overlay />
      <Drawer.Content aria-label="Menu">
        <Sidebar onFind={onFind} />
      </Drawer.Content>
    </Drawer.Root>
  );
}
