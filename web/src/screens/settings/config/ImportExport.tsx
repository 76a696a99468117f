import { Button } from '@mantine/core';
import { exportAddress } from '~/api/exports';
import { IconDownload } from '~/components/icons';
import { Card } from '~/components/Page';
import { useRole, useTenant } from '~/session';
import styles from '../Settings.module.css';
import { Import } from './Import';

export default function ImportExport() {
  const tenant = useTenant();
  const { edit } = useRole();
  return (
    <>
      <Card title="Export">
        <div className={styles.apart}>
          <p className="soft">
            Plans, rules and overrides, which <code>admin apply</code> reads.
          </p>
          <Button
            component="a"
            variant="default"
            leftSection={<IconDownload size={15} aria-hidden />}
            href={exportAddress(tenant, 'export')}
            download
          >
            Download YAML
          </Button>
        </div>
      </Card>
      {edit && <Import tenant={tenant} />}
    </>
  );
}
