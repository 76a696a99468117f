import { addressInFiles, keyInFiles, proxyFile } from '~/domain/proxies';
import { type ProxyName, proxies } from '~/domain/snippets';
import { useCheckUrl } from './CheckUrl';
import { CodeBlock } from './CodeBlock';

export default function ProxyCode({ proxy, secret }: { proxy: ProxyName; secret: string | undefined }) {
  const { url } = useCheckUrl();
  const { code, hasAddress } = proxyFile(proxy, url, secret);
  return (
    <>
      <CodeBlock label={proxies.find(({ value }) => value === proxy)?.label ?? proxy} code={code} />
      <p className="soft">
        <code>127.0.0.1:8000</code> stands for the address where it listens, <code>127.0.0.1:3000</code> for your
        service
        {!hasAddress && (
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
    </>
  );
}
