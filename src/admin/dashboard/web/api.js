// Calls of the API. A call that fails throws what the API says about it.

const BASE = "/api/v1";

async function call(path, options) {
  const answer = await fetch(BASE + path, { cache: "no-store", ...options });
  const said = await answer.json().catch(() => ({}));
  if (!answer.ok) {
    const problem = new Error(said.detail ?? `curtsy answered ${answer.status}`);
    problem.status = answer.status;
    throw problem;
  }
  return said;
}

export const get = (path) => call(path);

export function send(method, path, body) {
  return call(path, { method, headers: { "Content-Type": "application/json" }, body: JSON.stringify(body ?? {}) });
}

export const hostPath = (host) => `/hosts/${encodeURIComponent(host)}`;

// Everything that happens, while it happens. The browser comes back by itself and goes on where it was.
export function follow(query, { told, lost }) {
  const source = new EventSource(`${BASE}/events?${query}`);
  source.onmessage = (message) => told(JSON.parse(message.data));
  source.onerror = () => lost();
  // Some browsers keep a stream of a page that was left, and the number of listeners is bounded.
  addEventListener("pagehide", () => source.close());
  addEventListener("pageshow", (event) => event.persisted && location.reload());
  return source;
}
