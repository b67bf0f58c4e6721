// Formats times, numbers and reasons, in the same way as src/admin/dashboard/html.rs.

export function span(ms) {
  if (ms == null) return "–";
  if (ms === 0) return "0 s";
  if (ms < 10_000) return `${Math.max(0.1, Math.round(ms / 100) / 10)} s`;
  if (ms < 120_000) return `${Math.floor(ms / 1_000)} s`;
  if (ms < 7_200_000) return `${Math.floor(ms / 60_000)} min`;
  if (ms < 172_800_000) return `${Math.floor(ms / 3_600_000)} h`;
  return `${Math.floor(ms / 86_400_000)} d`;
}

export const seconds = (s) => (s == null ? "–" : span(Math.round(s * 1_000)));

export function number(n) {
  return String(n).replace(/\B(?=(\d{3})+$)/g, "\u202f");
}

// The same words as in src/admin/hosts/saved.rs.
export function size(bytes) {
  if (bytes < 1e3) return `${bytes} B`;
  if (bytes < 1e6) return `${(bytes / 1e3).toFixed(1)} kB`;
  return bytes < 1e9 ? `${(bytes / 1e6).toFixed(1)} MB` : `${(bytes / 1e9).toFixed(1)} GB`;
}

// The time of day, in the reader's time zone.
export function clock(moment) {
  const at = new Date(moment);
  return [at.getHours(), at.getMinutes(), at.getSeconds()].map((n) => String(n).padStart(2, "0")).join(":");
}

const WORDS = { robots: "robots.txt", "response-time": "response time", "retry-after": "Retry-After", "robots-fetch": "robots.txt is being fetched" };
export const words = (why) => WORDS[why] ?? why;

// What all nodes together know about a host; the same as in src/admin/dashboard/fleet.rs.
export function fleetWords({ from, last_start_s, nodes_waiting }) {
  if (from !== "redis") return "this node alone: other nodes are not counted here";
  const last = last_start_s == null ? [] : [`last start ${span(Math.floor(last_start_s * 1_000))} ago`];
  const waiting = nodes_waiting == null ? [] : [`${nodes_waiting} nodes wait`];
  return `from Redis: ${[...last, ...waiting].join(", ") || "not visited lately"}`;
}

// What a reader should know first about a host, and the class that marks it.
export function notable(host) {
  if (host.last_error) return [host.last_error, "is-bad"];
  if (host.state === "broken") return ["breaker open", "is-bad"];
  if (host.hold_cause) return [words(host.hold_cause), ""];
  if (host.unpaced_tunnels) return ["tunnels not paced", "is-warning"];
  return [words(host.why), ""];
}

// What a refusal means, shorter than in its response.
const REFUSALS = {
  "robots-denied": "robots.txt forbids it",
  "robots-unreachable": "robots.txt cannot be fetched",
  "destination-denied": "not a public address",
  "client-denied": "this client is not allowed",
  "auth-required": "no password",
  "queue-full": "too many requests wait",
  "hosts-full": "too many hosts",
  "wait-too-long": "it would wait too long",
  "host-cooling": "the host is held",
  "breaker-open": "the origin only fails",
  "http2-tunnel": "HTTP/2 inside a tunnel",
  "job-stopped": "the client is stopped",
  "shutting-down": "curtsy is stopping",
  "origin-unreachable": "the origin cannot be reached",
  "origin-timeout": "no answer in time",
  "quota-exceeded": "this client is too fast",
};
export const refusal = (code) => REFUSALS[code] ?? code;
