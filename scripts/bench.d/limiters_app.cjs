// Serves one page behind a limiter library: limiters_app.cjs NAME ADDRESS PORT MODULES.
const [name, address, port, modules] = process.argv.slice(2);
const load = (module) => require(require.resolve(module, { paths: [modules] }));

function express(middleware) {
  const app = load("express")();
  app.use(middleware);
  app.get("/", (_, response) => response.send("page"));
  app.listen(Number(port), address);
}

function expressRateLimit(options) {
  const { rateLimit } = load("express-rate-limit");
  express(rateLimit({ windowMs: 5000, validate: false, ...options }));
}

function flexible(options) {
  const { RateLimiterMemory } = load("rate-limiter-flexible");
  const limiter = new RateLimiterMemory(options);
  const refuse = (response) => response.status(429).send("slower");
  express((request, response, next) => limiter.consume(request.ip).then(() => next(), () => refuse(response)));
}

async function fastify() {
  const app = load("fastify")();
  await app.register(load("@fastify/rate-limit"), { max: 40, timeWindow: 5000 });
  app.get("/", async () => "page");
  await app.listen({ port: Number(port), host: address });
}

const apps = {
  "express-fields": () => expressRateLimit({ limit: 35, standardHeaders: "draft-7", legacyHeaders: false }),
  "express-silent": () => expressRateLimit({ limit: 60, standardHeaders: false, legacyHeaders: false }),
  fastify,
  "flexible-block": () => flexible({ points: 60, duration: 5, blockDuration: 10 }),
};
apps[name]();
