import { createHash, generateKeyPairSync, randomUUID, sign } from 'node:crypto';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';

/** An OpenID Connect provider that signs in whoever `person` is, without asking. */
export interface Provider {
  issuer: string;
  /** The claims of who is signed in there. */
  person: Record<string, unknown>;
  stop(): Promise<void>;
}

export const client = { id: 'sluice', secret: 'a secret of sixteen characters and more' };

const base64url = (value: unknown) => Buffer.from(JSON.stringify(value)).toString('base64url');

export async function startProvider(): Promise<Provider> {
  const { publicKey, privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const codes = new Map<string, URLSearchParams>();
  const server = createServer(async (request, response) => {
    const { pathname, searchParams } = new URL(request.url ?? '/', provider.issuer);
    const reply = (status: number, body: unknown) => {
      response.writeHead(status, { 'Content-Type': 'application/json' });
      response.end(JSON.stringify(body));
    };
    switch (pathname) {
      case '/.well-known/openid-configuration':
        return reply(200, {
          issuer: provider.issuer,
          authorization_endpoint: `${provider.issuer}/authorize`,
          token_endpoint: `${provider.issuer}/token`,
          jwks_uri: `${provider.issuer}/keys`,
          end_session_endpoint: `${provider.issuer}/end`,
          id_token_signing_alg_values_supported: ['ES256'],
        });
      case '/keys':
        return reply(200, { keys: [{ ...publicKey.export({ format: 'jwk' }), alg: 'ES256', use: 'sig' }] });
      case '/authorize': {
        const code = randomUUID();
        codes.set(code, searchParams);
        const back = new URL(searchParams.get('redirect_uri') ?? '');
        back.searchParams.set('code', code);
        back.searchParams.set('state', searchParams.get('state') ?? '');
        response.writeHead(302, { Location: back.href });
        return response.end();
      }
      case '/token': {
        let text = '';
        for await (const part of request) text += part;
        const sent = new URLSearchParams(text);
        const asked = codes.get(sent.get('code') ?? '');
        codes.delete(sent.get('code') ?? '');
        const challenge = createHash('sha256')
          .update(sent.get('code_verifier') ?? '')
          .digest('base64url');
        if (!asked || asked.get('code_challenge') !== challenge)
          return reply(400, { error: 'invalid_grant' });
        const now = Math.floor(Date.now() / 1000);
        const claims = {
          iss: provider.issuer,
          aud: client.id,
          nonce: asked.get('nonce'),
          iat: now,
          exp: now + 60,
          ...(asked.has('max_age') && { auth_time: now }),
        };
        const signed = `${base64url({ alg: 'ES256' })}.${base64url({ ...claims, ...provider.person })}`;
        const signature = sign('sha256', Buffer.from(signed), { key: privateKey, dsaEncoding: 'ieee-p1363' });
        const id_token = `${signed}.${signature.toString('base64url')}`;
        return reply(200, { access_token: randomUUID(), token_type: 'Bearer', id_token });
      }
      case '/end':
        response.writeHead(302, { Location: searchParams.get('post_logout_redirect_uri') ?? '/' });
        return response.end();
      default:
        return reply(404, {});
    }
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const provider: Provider = {
    issuer: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    person: {},
    async stop() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
  return provider;
}
