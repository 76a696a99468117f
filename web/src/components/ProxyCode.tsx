import { useQuery } from '@tanstack/react-query';
import { useParams } from '@tanstack/react-router';
import { authorizeKind, mappingQuery } from '~/api/gateways';
import { addressInFiles, fits, keyInFiles, proxyFiles } from '~/domain/proxies';
import type { ProxyName } from '~/domain/snippets';
import { useCheckUrl } from './CheckUrl';
import { CodeBlock } from './CodeBlock';
import { Query } from './Query';

interface Props {
  proxy: ProxyName;
  secret?: string;
}

export default function ProxyCode(props: Props) {
  const { tenant } = useParams({ strict: false });
  return tenant ? <OfTenant tenant={tenant} {...props} /> : <Files mapping={{}} {...props} />;
}

function OfTenant({ tenant, ...props }: Props & { tenant: string }) {
  const saved = useQuery(mappingQuery(authorizeKind, tenant));
  return <Query query={saved}>{({ value }) => <Files mapping={value.mapping} {...props} />}</Query>;
}

function Files({ proxy, secret, mapping }: Props & { mapping: Parameters<typeof proxyFiles>[3] }) {
  const { url } = useCheckUrl();
  const chosen = mapping?.user?.header; // all others are proved, or set by the proxy
  return (
    <>
      {proxyFiles(proxy, url, secret, mapping).map(({ name, code }) => (
        <CodeBlock key={name} label={name} code={code} />
      ))}
      <p className="soft">
        <code>127.0.0.1:8000</code> stands for the address where it listens, <code>127.0.0.1:3000</code> for your
        service
        {!fits(url) && (
          <>
            , <code>{addressInFiles}</code> for Sluice in your network
          </>
        )}
        {!secret && (
          <>
            , <code>{keyInFiles}</code> for an API key that may check
          </>
        )}
        .
      </p>
      {chosen && (
        <p role="note">
          <strong>Visitors can send {chosen} and choose who they are.</strong> Set or remove it in the proxy, unless
          your service refuses values that it did not give out.
        </p>
      )}
    </>
  );
}
