// A certified OpenID Connect provider on loopback, with people, groups and faults that a test sets.
//
// node provider.mjs FOLDER, where FOLDER has node_modules. It writes its port in one line and ends
// with its standard input. POST /control takes what is to be other from then on.
import { createServer } from "node:http";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const require = createRequire(`${process.argv[2]}/package.json`);
const load = (name) => import(pathToFileURL(require.resolve(name)));
const { default: OidcProvider } = await load("oidc-provider");
const jose = await load("jose");

const PASSWORD = "right";
const state = {
  clients: [],
  people: {}, // name → claims
  fault: null, // { claims, key: "stranger" | "retired" | "secret" | "none", discovery }
};
let keys = []; // newest first; the first signs, and it alone is shown
let provider;
let issuer;

const makeKey = async (kid) => {
  const { privateKey } = await jose.generateKeyPair("RS256", { extractable: true });
  return { ...(await jose.exportJWK(privateKey)), kid, use: "sig", alg: "RS256" };
};

const signed = async (body, { claims = {}, key }) => {
  const payload = { ...jose.decodeJwt(body), ...claims };
  for (const [name, value] of Object.entries(payload)) if (value === null) delete payload[name];
  if (key === "none") {
    const part = (value) => Buffer.from(JSON.stringify(value)).toString("base64url");
    return `${part({ alg: "none" })}.${part(payload)}.`;
  }
  if (key === "secret") {
    const secret = new TextEncoder().encode(state.clients[0].client_secret);
    return new jose.SignJWT(payload).setProtectedHeader({ alg: "HS256" }).sign(secret);
  }
  // A stranger's key under the name of the one that is shown; a retired one under its own.
  const jwk = key === "stranger" ? { ...(await makeKey(keys[0].kid)) } : key === "retired" ? keys[1] : keys[0];
  return new jose.SignJWT(payload).setProtectedHeader({ alg: "RS256", kid: jwk.kid }).sign(await jose.importJWK(jwk, "RS256"));
};

const build = () => {
  provider = new OidcProvider(issuer, {
    clients: state.clients,
    jwks: { keys: [keys[0]] },
    cookies: { keys: ["of tests alone"] },
    claims: {
      email: ["email", "email_verified"],
      profile: ["preferred_username", "given_name", "family_name", "groups"],
    },
    features: {
      devInteractions: { enabled: false },
      clientCredentials: { enabled: true },
      // The API of the portal, for which machines get signed tokens.
      resourceIndicators: {
        enabled: true,
        getResourceServerInfo: (_, resource) => ({
          scope: "portal:read portal:write",
          audience: resource,
          accessTokenTTL: 600,
          accessTokenFormat: "jwt",
          jwt: { sign: { alg: "RS256" } },
        }),
      },
      rpInitiatedLogout: {
        enabled: true,
        logoutSource: (ctx, form) => {
          ctx.body = `<!doctype html><title>Sign out</title>${form}<button form="op.logoutForm" name="logout" value="yes">Sign out here too</button>`;
        },
      },
    },
    pkce: { required: () => true },
    interactions: { url: (_, interaction) => `/interaction/${interaction.uid}` },
    findAccount: (_, id) =>
      state.people[id] && { accountId: id, claims: () => ({ sub: id, ...state.people[id] }) },
    loadExistingGrant: async (ctx) => {
      const grant = new ctx.oidc.provider.Grant({
        accountId: ctx.oidc.session.accountId,
        clientId: ctx.oidc.client.clientId,
      });
      grant.addOIDCScope("openid profile email");
      await grant.save();
      return grant;
    },
  });
  provider.use(async (ctx, next) => {
    await next();
    if (ctx.oidc?.route === "discovery") Object.assign(ctx.body, state.fault?.discovery);
    if (state.fault && ctx.oidc?.route === "token") {
      const name = ctx.body?.id_token ? "id_token" : "access_token";
      if (ctx.body?.[name]) ctx.body[name] = await signed(ctx.body[name], state.fault);
    }
  });
};

const bodyOf = async (request) => {
  let text = "";
  for await (const part of request) text += part;
  return text;
};

const control = async (request, response) => {
  const { rotate, ...changes } = JSON.parse(await bodyOf(request));
  Object.assign(state, changes);
  if (rotate) keys.unshift(await makeKey(`key-${keys.length}`));
  if (rotate || changes.clients) build();
  response.end("{}");
};

const interaction = async (request, response) => {
  await provider.interactionDetails(request, response);
  if (request.method === "GET") {
    response.setHeader("content-type", "text/html");
    response.end(`<!doctype html><html lang="en"><title>Company</title><h1>Company</h1><form method="post"><label>Name <input name="login"></label><label>Password <input name="password" type="password"></label><button>Continue</button></form></html>`);
    return;
  }
  const given = new URLSearchParams(await bodyOf(request));
  const isRight = given.get("password") === PASSWORD && state.people[given.get("login")];
  const result = isRight
    ? { login: { accountId: given.get("login") } }
    : { error: "access_denied", error_description: "wrong name or password" };
  await provider.interactionFinished(request, response, result, { mergeWithLastSubmission: false });
};

const server = createServer((request, response) => {
  if (request.url === "/favicon.ico") {
    response.writeHead(204).end();
    return;
  }
  const answer = request.url === "/control" ? control : request.url.startsWith("/interaction/") ? interaction : provider.callback();
  Promise.resolve(answer(request, response)).catch((error) => {
    console.error(error);
    response.statusCode = 500;
    response.end(String(error));
  });
});
keys = [await makeKey("key-0")];
server.listen(0, "127.0.0.1", () => {
  issuer = `http://127.0.0.1:${server.address().port}`;
  build();
  console.log(server.address().port);
});
process.stdin.resume();
process.stdin.on("end", () => process.exit(0));
