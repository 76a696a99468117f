import { Button } from '@mantine/core';
import { useQuery, useQueryClient } from '@tanstack/react-query';
import { useSearch } from '@tanstack/react-router';
import { useState } from 'react';
import { changed } from '~/api/changes';
import { api, ifMatch, type Tagged, tagged } from '~/api/client';
import type { StoredAuthorizeMapping } from '~/api/types';
import { ConfirmAction } from '~/components/ConfirmAction';
import { Facts } from '~/components/Facts';
import { IconPlus, IconRoute } from '~/components/icons';
import { Card } from '~/components/Page';
import { Query } from '~/components/Query';
import { EmptyState } from '~/components/states';
import { done } from '~/components/toast';
import type { SettingsSearch } from '~/search';
import { useRole, useTenant } from '~/session';
import { described, formCovers } from './draft';
import styles from './Gateways.module.css';
import { MappingForm } from './MappingForm';
import { authorizeQuery } from './queries';
import { Recipes } from './Recipes';
import { Sample } from './Sample';
import { useMappingEditor } from './useMappingEditor';

/** How requests that a proxy asks about become checks. */
export default function Gateways() {
  const tenant = useTenant();
  const stored = useQuery(authorizeQuery(tenant));
  return <Query query={stored}>{(saved) => <Authorize tenant={tenant} saved={saved} />}</Query>;
}

/** The mapping for proxies that ask over HTTP, beside what it makes of a sample. */
function Authorize({ tenant, saved }: { tenant: string; saved: Tagged<StoredAuthorizeMapping> }) {
  const { edit } = useRole();
  const queries = useQueryClient();
  const { view } = useSearch({ strict: false }) as SettingsSearch;
  const { mapping, is_default } = saved.value;
  // A newer version of the product may have saved what this form does not know.
  const json = view === 'json' || !formCovers(mapping);
  const editor = useMappingEditor(tenant, saved, json);
  const [starting, setStarting] = useState(false);
  const [removing, setRemoving] = useState(false);
  const isEmpty = is_default && !starting && !editor.dirty && view !== 'json';

  async function remove() {
    const path = { tenant };
    await api.DELETE('/api/v1/tenants/{tenant}/gateways/authorize', {
      params: { path, header: ifMatch(saved.etag) },
    });
    editor.adopt(await tagged(api.GET('/api/v1/tenants/{tenant}/gateways/authorize', { params: { path } })));
    setStarting(false);
    await changed(queries, tenant, 'gateway');
    done('Mapping removed. This takes effect within 2 s');
  }

  return (
    <div className={styles.columns}>
      <div className={styles.column}>
        {isEmpty ? (
          <Card>
            <EmptyState
              icon={<IconRoute size={20} aria-hidden />}
              title="No mapping yet"
              action={
                edit && (
                  <Button leftSection={<IconPlus size={15} aria-hidden />} onClick={() => setStarting(true)}>
                    New mapping
                  </Button>
                )
              }
            >
              A gateway, such as nginx, can ask Sluice about each request, so that your services need no code.
              It works as it is for limits by address and path. A mapping also says which header or claim is
              the user, which paths are one endpoint, and what a request costs.
            </EmptyState>
          </Card>
        ) : edit ? (
          <MappingForm
            editor={editor}
            json={json}
            onCancel={
              is_default && starting
                ? () => {
                    editor.discard();
                    setStarting(false);
                  }
                : undefined
            }
            remove={
              !is_default && (
                <Button variant="default" onClick={() => setRemoving(true)}>
                  Remove mapping …
                </Button>
              )
            }
          />
        ) : (
          <Card title="Mapping" lead="What a request is to your rules.">
            <Facts facts={described(mapping)} />
          </Card>
        )}
        <Recipes tenant={tenant} />
      </div>
      <div className={styles.column}>
        <Sample tenant={tenant} mapping={edit ? editor.mapping : mapping} />
      </div>
      <ConfirmAction
        opened={removing}
        onClose={() => setRemoving(false)}
        title="Remove this mapping?"
        effect="Within 2 s, requests from your gateways have no user, their whole path as the endpoint, the last address of X-Forwarded-For, and a cost of 1. Rules for users no longer match them. You can undo this in the audit log."
        verb="Remove mapping"
        destructive
        gone={is_default}
        action={remove}
      />
    </div>
  );
}
