// Calls of the API. A call that fails throws an error with the message of the API.

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

// Follows the events as they happen. A hidden page closes its stream, because browsers allow a site six connections,
// and curtsy limits the number of listeners. A page that becomes visible again continues where it was.
export function follow(recent, { told, lost }) {
  let source = null;
  let last = null;
  const listen = () => {
    source = new EventSource(`${BASE}/events?${last ? `after=${last}` : `recent=${recent}`}`);
    source.onmessage = (message) => {
      last = message.lastEventId || last;
      told(JSON.parse(message.data));
    };
    source.onerror = () => {
      lost();
      // The browser tries again by itself, unless the server refused the stream.
      if (source?.readyState === EventSource.CLOSED) setTimeout(change, 5_000);
    };
  };
  const change = () => {
    source?.close();
    source = null;
    if (!document.hidden) listen();
  };
  document.addEventListener("visibilitychange", change);
  addEventListener("pagehide", () => source?.close());
  addEventListener("pageshow", (event) => event.persisted && change());
  change();
}
