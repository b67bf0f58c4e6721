// The list of events: finished requests, and changes of hosts. Newest first, bounded, drawn at most once per frame.

import { clock, number, refusal, seconds, span, words } from "./format.js";

const MOST = 100;

export class Feed {
  #waiting = [];
  #drawing = false;
  #paused = false;

  constructor({ list, pause, onlyRefused, explain }) {
    Object.assign(this, { list, explain });
    pause.addEventListener("click", () => {
      this.#paused = !this.#paused;
      pause.setAttribute("aria-pressed", this.#paused);
      pause.textContent = this.#paused ? "Continue the list" : "Stop the list";
      this.#schedule();
    });
    onlyRefused.addEventListener("change", () => list.classList.toggle("only-refused", onlyRefused.checked));
  }

  tell(event) {
    const line = event.event === "request" ? request(event, this.explain) : news(event);
    if (!line) return;
    this.#waiting.push(line);
    if (this.#waiting.length > MOST) this.#waiting.shift();
    this.#schedule();
  }

  #schedule() {
    if (this.#drawing || this.#paused || this.#waiting.length === 0) return;
    this.#drawing = true;
    requestAnimationFrame(() => {
      this.#drawing = false;
      this.list.prepend(...this.#waiting.reverse());
      this.#waiting = [];
      while (this.list.childElementCount > MOST) this.list.lastElementChild.remove();
    });
  }
}

function part(name, text, className) {
  const element = document.createElement(name);
  element.className = className;
  element.textContent = text;
  return element;
}

function request(event, explain) {
  const line = document.createElement("li");
  const refused = event.error != null;
  line.className = refused ? "is-refused" : "is-request";
  const status = event.status == null ? "left" : String(event.status);
  const kind = refused || event.status == null ? "refused" : `is-${String(event.status)[0]}xx`;
  const url = part("span", `${event.method} ${event.url.replace(/^http:\/\//, "")}`, "url");
  url.title = `${event.method} ${event.url}\nby ${event.client}, ${number(event.bytes)} bytes in ${span(event.took_ms)}`;
  line.append(part("time", clock(event.at), "at"), part("b", status, `status ${kind}`), url, part("span", outcome(event), "what"));
  if (refused && explain && event.method !== "CONNECT" && !event.url.includes("…")) {
    const why = part("button", "why?", "quiet");
    why.type = "button";
    why.addEventListener("click", () => explain(event.url));
    line.append(why);
  }
  return line;
}

// What the cache did, where it did something.
const CACHED = { hit: "from the cache", stale: "from the cache, stale", shared: "shared with another request", validated: "unchanged (304)" };

function outcome(event) {
  if (event.error) return refusal(event.error);
  if (event.status == null) return "the client disconnected";
  if (CACHED[event.cache]) return CACHED[event.cache];
  if (event.wait_ms > 0) return `waited ${span(event.wait_ms)}, ${words(event.why ?? "configured")}`;
  return event.origin_ms == null ? "" : `answered in ${span(event.origin_ms)}`;
}

const NEWS = {
  "request.waiting": (e) => `${e.method} ${e.url.replace(/^http:\/\//, "")} of ${e.client} waits, ${e.expected_ms == null ? "until the host is resumed" : `about ${span(e.expected_ms)} more`}: ${words(e.why)}${e.more ? `; ${number(e.more)} more like it` : ""}`,
  "host.slowed": (e) => `slowed to ${span(e.delay_ms)}: ${e.why}${e.held_s >= 1 ? `; held ${seconds(e.held_s)}` : ""}`,
  "host.recovered": (e) => `down to ${span(e.delay_ms)}: ${e.why}`,
  "host.held": (e) => `held ${seconds(e.held_s)}: ${e.why}`,
  "host.paused": (e) => (e.held_s == null ? "paused by hand" : `paused by hand for ${seconds(e.held_s)}`),
  "host.resumed": () => "resumed by hand",
  "host.steered": (e) => `set by hand, delay now ${span(e.delay_ms)}`,
  "host.forgotten": () => "learned values were removed",
  "breaker.opened": (e) => `${e.origin ?? ""} left alone for ${seconds(e.held_s)}: ${e.why}`,
  "breaker.closed": (e) => `${e.origin ?? ""} answers again`,
  "robots.fetched": (e) => `robots.txt ${e.result}${e.status ? ` (${e.status})` : ""}`,
  "job.stopped": (e) => `client ${e.client} stopped: ${e.why}`,
  "job.resumed": (e) => `client ${e.client} was resumed`,
  "client.left": (e) => `client ${e.client} disconnected after ${seconds(e.after_s)} in the queue: ${e.why}`,
  "config.reloaded": (e) => `configuration reloaded: ${e.changed.join(", ") || "nothing changed"}`,
  "config.changed": (e) => `configuration changed: ${e.changed.join(", ") || "nothing"}`,
  "cache.unwritten": (e) => `stored answers stay in memory alone, ${e.directory}: ${e.why}`,
  "cache.recovered": (e) => `answers are stored in ${e.directory} again`,
  "cache.damaged": (e) => `damaged answers in ${e.directory} were deleted: ${e.why}`,
  "config.reload_failed": (e) => `reload failed: ${e.why}`,
  lost: (e) => `${number(e.count)} more events, not shown because there were too many`,
};

function news(event) {
  const say = NEWS[event.event];
  if (!say) return null;
  const line = document.createElement("li");
  line.className = "is-news";
  line.append(part("time", event.at ? clock(event.at) : "", "at"));
  if (event.host) {
    const link = part("a", event.host, "who");
    link.href = `/hosts/${encodeURIComponent(event.host)}`;
    line.append(link);
  }
  line.append(part("span", say(event), "what"));
  return line;
}
