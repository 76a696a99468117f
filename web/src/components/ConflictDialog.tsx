import { Button, Group, Modal } from '@mantine/core';
import styles from './ConflictDialog.module.css';
import { useEscape } from './useEscape';
import { useFocusBack } from './useFocusBack';

interface Versions {
  label: string;
  mine: string;
  theirs: string;
}

interface Props {
  opened: boolean;
  what: string;
  versions: Versions[];
  onKeepMine: () => void;
  onTakeTheirs: () => void;
  onClose: () => void;
}

export function ConflictDialog({ opened, what, versions, onKeepMine, onTakeTheirs, onClose }: Props) {
  useFocusBack(opened);
  useEscape(opened, onClose);
  const title = `Someone changed ${what} while you were editing`;
  return (
    <Modal
      opened={opened}
      onClose={onClose}
      closeOnEscape={false}
      size={560}
      title={title}
      closeButtonProps={{ 'aria-label': 'Back to editing' }}
    >
      <p className="soft">Your version is not saved yet.</p>
      <table className={styles.versions}>
        <thead>
          <tr>
            <td />
            <th scope="col">Saved version</th>
            <th scope="col">Your version</th>
          </tr>
        </thead>
        <tbody>
          {versions.map(({ label, mine, theirs }) => (
            <tr key={label} data-differs={mine !== theirs || undefined}>
              <th scope="row">{label}</th>
              <td>{theirs}</td>
              <td>{mine}</td>
            </tr>
          ))}
        </tbody>
      </table>
      <Group justify="flex-end" mt="lg">
        <Button variant="default" onClick={onTakeTheirs}>
          Keep the saved version
        </Button>
        <Button onClick={onKeepMine} data-autofocus>
          Overwrite with mine
        </Button>
      </Group>
    </Modal>
  );
}
