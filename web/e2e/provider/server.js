// An OpenID Connect provider that we did not write: oidc-provider, which is certified by the OpenID Foundation. It is a process of its own.
// It prints its issuer. PUT /test/client registers Sluice, and PUT /test/person says who the person before the browser is, whom it signs in
// without asking.
import { generateKeyPairSync, randomBytes } from 'node:crypto';
import { createServer } from 'node:http';
import { json } from 'node:stream/consumers';
import { Provider } from 'oidc-provider';

const jwk = (type, options) => generateKeyPairSync(type, options).privateKey.export({ format: 'jwk' });

const complain = (error) => process.stderr.write(`${error.stack}\n`);
const people = new Map();
let person;
let handle;

function provide(issuer, client) {
  const provider = new Provider(issuer, {
    clients: [{ ...client, id_token_signed_response_alg: 'ES256' }],
    jwks: { keys: [jwk('rsa', { modulusLength: 2048 }), jwk('ec', { namedCurve: 'P-256' })] },
    cookies: { keys: [randomBytes(32).toString('hex')] },
    pkce: { required: () => true },
    claims: { openid: ['sub'], email: ['email', 'email_verified'], profile: ['name', 'groups'] },
    features: {
      devInteractions: { enabled: false },
      rpInitiatedLogout: {
        logoutSource(ctx, form) {
          const script =
            'document.forms[0].append(Object.assign(document.createElement("input"),{name:"logout",value:"yes"}))';
          ctx.body = `<!doctype html><title>Sign out</title>${form}<script>${script};document.forms[0].submit()</script>`;
        },
      },
    },
    interactions: { url: (_, { uid }) => `/test/interaction/${uid}` },
    findAccount: (_, accountId) => ({ accountId, claims: () => people.get(accountId) }),
    // Nobody is asked what Sluice may know.
    async loadExistingGrant({ oidc }) {
      const grant = new oidc.provider.Grant({
        clientId: oidc.client.clientId,
        accountId: oidc.session.accountId,
      });
      grant.addOIDCScope('openid email profile');
      await grant.save();
      return grant;
    },
  });
  provider.on('server_error', (_, error) => complain(error));
  const rest = provider.callback();
  handle = (request, response) =>
    request.url.startsWith('/test/interaction/')
      ? provider.interactionFinished(request, response, { login: { accountId: person } })
      : rest(request, response);
}

const server = createServer(async (request, response) => {
  try {
    if (request.method === 'PUT') {
      const sent = await json(request);
      if (request.url === '/test/client') provide(issuer, sent);
      else {
        person = sent.sub;
        people.set(person, sent);
      }
      return response.writeHead(204).end();
    }
    if (!handle) return response.writeHead(503).end();
    await handle(request, response);
  } catch (error) {
    complain(error);
    if (!response.headersSent) response.writeHead(500);
    response.end();
  }
});
let issuer;
server.listen(0, '127.0.0.1', () => {
  issuer = `http://127.0.0.1:${server.address().port}`;
  process.stdout.write(`${issuer}\n`);
});
