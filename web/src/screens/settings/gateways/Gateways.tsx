import { Button, SegmentedControl } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { useNavigate, useSearch } from '@tanstack/react-router';
import { useState } from 'react';
import type { Tagged } from '~/api/client';
import { ConfirmAction } from '~/components/ConfirmAction';
import { Facts } from '~/components/Facts';
import type { Wrong } from '~/components/FormDialog';
import { IconPlus, IconRoute } from '~/components/icons';
import { Card } from '~/components/Page';
import { Query } from '~/components/Query';
import { EmptyState } from '~/components/states';
import type { SettingsSearch } from '~/search';
import { useRole, useTenant } from '~/session';
import { DescriptorFields } from './DescriptorFields';
import { DescriptorSample } from './DescriptorSample';
import { Fields } from './Fields';
import styles from './Gateways.module.css';
import { authorizeKind, descriptorKind, type Kind, mappingQuery, type Stored } from './kinds';
import { MappingForm } from './MappingForm';
import { envoyRecipes, httpRecipes, Recipes } from './Recipes';
import { Sample } from './Sample';
import { useMappingEditor } from './useMappingEditor';

/** How requests that a proxy asks about become checks. */
export default function Gateways() {
  const tenant = useTenant();
  const navigate = useNavigate();
  const { gateway } = useSearch({ strict: false }) as SettingsSearch;
  return (
    <div className={styles.column}>
      <SegmentedControl
        aria-label="Gateway"
        className={styles.choice}
        data={[
          { value: 'http', label: 'HTTP: nginx, Caddy, HAProxy …' },
          { value: 'envoy', label: 'gRPC: Envoy, Istio …' },
        ]}
        value={gateway ?? 'http'}
        onChange={(next) =>
          navigate({
            to: '.',
            search: (old: object) => ({ ...old, gateway: next === 'envoy' ? next : undefined }),
            replace: true,
          })
        }
      />
      {gateway === 'envoy' ? (
        <Stack
          key="envoy"
          kind={descriptorKind}
          tenant={tenant}
          lead="What descriptors are to your rules."
          empty="Envoy can ask Sluice about each request by its rate limit service. It works as it is: the domain is this tenant’s name, and the entries user_id, path, method, plan and remote_address fill the check. A mapping names other keys and other domains."
          effect="Within 2 s, only the domain of this tenant’s name is answered, and only the default keys fill a check. Rules for descriptors of other domains no longer match. You can undo this in the audit log."
          fields={(props) => <DescriptorFields {...props} />}
          sample={(mapping) => <DescriptorSample tenant={tenant} mapping={mapping} />}
          recipes={<Recipes tenant={tenant} recipes={envoyRecipes} />}
        />
      ) : (
        <Stack
          key="http"
          kind={authorizeKind}
          tenant={tenant}
          lead="What a request is to your rules."
          empty="A gateway, such as nginx, can ask Sluice about each request, so that your services need no code. It works as it is for limits by address and path. A mapping also says which header or claim is the user, which paths are one endpoint, and what a request costs."
          effect="Within 2 s, requests from your gateways have no user, their whole path as the endpoint, the last address of X-Forwarded-For, and a cost of 1. Rules for users no longer match them. You can undo this in the audit log."
          fields={(props) => <Fields {...props} />}
          sample={(mapping) => <Sample tenant={tenant} mapping={mapping} />}
          recipes={<Recipes tenant={tenant} recipes={httpRecipes} />}
        />
      )}
    </div>
  );
}

interface Props<M extends object, D> {
  kind: Kind<M, D>;
  tenant: string;
  lead: string;
  /** What the screen says without a mapping. */
  empty: string;
  /** What removing the mapping does. */
  effect: string;
  fields: (props: { draft: D; wrong: Wrong; onChange: (draft: D) => void }) => React.ReactNode;
  /** Shows what a sample becomes; the mapping is undefined while it cannot be read. */
  sample: (mapping: M | undefined) => React.ReactNode;
  recipes: React.ReactNode;
}

function Stack<M extends object, D>(props: Props<M, D>) {
  const stored = useQuery(mappingQuery(props.kind, props.tenant));
  return <Query query={stored}>{(saved) => <Mapping {...props} saved={saved} />}</Query>;
}

/** A mapping, beside what it makes of a sample. */
function Mapping<M extends object, D>(props: Props<M, D> & { saved: Tagged<Stored<M>> }) {
  const { kind, tenant, lead, saved } = props;
  const { edit } = useRole();
  const { view } = useSearch({ strict: false }) as SettingsSearch;
  const { mapping, is_default } = saved.value;
  // A newer version of the product may have saved what this form does not know.
  const json = view === 'json' || !kind.formCovers(mapping);
  const editor = useMappingEditor(tenant, kind, saved, json);
  const [starting, setStarting] = useState(false);
  const [removing, setRemoving] = useState(false);
  const isEmpty = is_default && !starting && !editor.dirty && view !== 'json';

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
              {props.empty}
            </EmptyState>
          </Card>
        ) : edit ? (
          <MappingForm
            kind={kind}
            editor={editor}
            lead={lead}
            json={json}
            fields={props.fields}
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
          <Card title="Mapping" lead={lead}>
            <Facts facts={kind.described(mapping)} />
          </Card>
        )}
        {props.recipes}
      </div>
      <div className={styles.column}>{props.sample(edit ? editor.mapping : mapping)}</div>
      <ConfirmAction
        opened={removing}
        onClose={() => setRemoving(false)}
        title="Remove this mapping?"
        effect={props.effect}
        verb="Remove mapping"
        destructive
        gone={is_default}
        action={async () => {
          await editor.remove();
          setStarting(false);
        }}
      />
    </div>
  );
}
