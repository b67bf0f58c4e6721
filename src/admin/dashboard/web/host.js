// The page of one host: the parts of its delay, its starts, two charts, the waiting requests, and the controls.

import { follow, get, hostPath, send } from "./api.js";
import { chart } from "./chart.js";
import { parts } from "./explain.js";
import { fleetWords, number, seconds, size, span, words } from "./format.js";
import { copies, keys } from "./keys.js";
import { Feed } from "./live.js";
import { timeline } from "./timeline.js";

const byId = (id) => document.getElementById(id);
const BEAT = 5_000; // ms between two points of the charts
const SHOWN = 20; // waiting requests

export function host({ pulse, openHelp }) {
  const name = byId("host").dataset.host;
  const path = hostPath(name);
  let known = null;
  let until = null;
  let ends = null; // when the hold ends
  let asked = null; // the time for the second click on "Pause host"

  function show(told) {
    known = told;
    until = told.next_available_s == null ? null : performance.now() + told.next_available_s * 1_000;
    const held = told.paused ? (told.paused_until ? "paused for a while" : "paused") : told.held_s == null ? "no" : seconds(told.held_s);
    put("state", told.state);
    document.querySelector(".title .state").className = `state is-${told.state}`;
    put("delay", span(told.delay_ms));
    document.querySelector('[data-show="parts"]').replaceChildren(...parts(told.delay));
    put("note", note(told));
    put("waits", waits(told));
    put("last", told.last_error ?? (told.last_status == null ? "–" : String(told.last_status)));
    put("tunnelled", told.tunnelled ? `${number(told.tunnelled)} in tunnels: only paced` : "");
    ends = told.held_s == null || told.paused ? null : performance.now() + told.held_s * 1_000;
    put("held", held);
    put("cause", told.hold_cause ? words(told.hold_cause) : "");
    put("concurrency", number(told.concurrency.effective));
    put("floor", span(told.floor_ms));
    put("limit", limit(told.limit));
    put("errors", number(told.error_streak));
    put("successes", number(told.success_streak));
    const open = told.breaker.origins.filter((at) => at.state !== "closed").map((at) => `${at.origin}: ${at.state}`);
    put("breaker", open.join(", ") || told.breaker.state);
    ["queued", "in_flight", "burst", "burst_left", "visits"].forEach((field) => put(field, number(told[field])));
    put("mode", told.mode);
    if (told.fleet) put("fleet", fleetWords(told.fleet));
    // Answers to changes do not have it.
    if (told.saved) put("saved", `${number(told.saved.requests)} request${told.saved.requests === 1 ? "" : "s"}, ${size(told.saved.bytes)}`);
    if (!asked) byId("pause").textContent = told.paused ? "Resume host" : "Pause host";
    byId("toml").textContent = toml(told);
    // Answers to changes have no timeline; the next answer has one.
    if (told.timeline) byId("timeline").replaceChildren(...timeline(told.timeline, { delay: told.delay_ms, width: byId("timeline").clientWidth }));
    tick();
  }

  function tick() {
    if (ends != null) {
      const left = (ends - performance.now()) / 1_000;
      if (left > 0) put("held", seconds(left));
      else (ends = null), refresh();
    }
    const left = until == null ? null : Math.max(0, (until - performance.now()) / 1_000);
    put("next", known?.paused ? "–" : left == null ? "–" : left === 0 ? "now" : `in ${seconds(left)}`);
  }

  let busy = false;
  let again = false;
  let closed = false; // while the last answer is fresh
  async function refresh() {
    if (busy || closed) return void (again = true);
    [busy, again] = [true, false];
    try {
      const [told, queue] = await Promise.all([get(path), get(`/queue?host=${encodeURIComponent(name)}&limit=${SHOWN}`)]);
      show(told);
      waiting(queue.waiting);
    } catch (problem) {
      if (problem.status === 404) say("This host has been forgotten; it appears again with its next request.");
    }
    [busy, closed] = [false, true];
    setTimeout(() => ((closed = false), again && refresh()), 1_000);
  }

  async function draw() {
    if (document.hidden) return;
    try {
      charts(await get(`${path}/history`));
    } catch {
      // The charts stay as they are.
    }
  }

  async function steer(method, wish, done) {
    try {
      const told = await send(method, path, wish);
      show(told.host?.delay ? told.host : told);
      say(done);
    } catch (problem) {
      say(problem.message, true);
    }
  }

  byId("pause").addEventListener("click", () => {
    const paused = !known?.paused;
    // A pause stops a crawl, so it takes a second click while requests wait.
    if (paused && known?.queued > 0 && !asked) {
      asked = setTimeout(() => ((asked = null), show(known)), 4_000);
      byId("pause").textContent = `Pause while ${number(known.queued)} wait?`;
      return;
    }
    clearTimeout(asked);
    asked = null;
    steer("PATCH", { paused }, paused ? "Paused: new requests are refused until you resume it." : "Resumed.");
  });
  byId("set-delay").addEventListener("submit", (event) => {
    event.preventDefault();
    const delay = byId("delay").value.trim();
    if (delay) steer("PATCH", { delay: /^\d+(\.\d+)?$/.test(delay) ? `${delay}s` : delay }, "Set, also for waiting requests. The largest part of the delay counts.");
  });
  byId("reset").addEventListener("click", () => steer("PATCH", { delay: null, burst: null, concurrency: null }, "Reset to the configured values."));
  byId("forget").addEventListener("click", () => steer("DELETE", {}, "Learned and set values were removed. Holds, pauses and the time of the last request stay."));
  byId("forget-stored").addEventListener("click", async () => {
    try {
      const { forgotten } = await send("DELETE", `/cache?host=${encodeURIComponent(name)}`);
      byId("stored").textContent = "0";
      say(`Forgot ${number(forgotten)} stored answers.`);
    } catch (problem) {
      say(problem.message, true);
    }
  });
  copies(byId("copy-toml"), () => byId("toml").textContent);

  const feed = new Feed({ list: byId("feed"), pause: byId("pause-live"), onlyRefused: byId("only-refused") });
  follow(300, {
    told: (event) => {
      pulse.heard();
      if (event.event === "status") refresh();
      else if (event.host === name) feed.tell(event), refresh();
    },
    lost: () => pulse.lost(),
  });
  get("/status").then((status) => pulse.show(status), () => {});
  setInterval(tick, 1_000);
  setInterval(draw, BEAT);
  document.addEventListener("visibilitychange", () => (refresh(), draw()));
  refresh();
  draw();
  keys({ u: () => location.assign("/"), "?": openHelp, Escape: (event) => event.target.blur?.() });
}

const put = (field, text) => document.querySelectorAll(`[data-show="${field}"]`).forEach((element) => {
  if (element.textContent !== text) element.textContent = text;
});

function say(text, bad = false) {
  byId("said").textContent = text;
  byId("said").classList.toggle("is-bad", bad);
}

// What requests wait for, as a sentence; the same as in src/admin/dashboard/host.rs.
function waits(told) {
  if (told.last_error && told.state === "unreachable") return `The host cannot be reached: ${told.last_error}. Requests are refused until it is tried again.`;
  if (told.state === "broken") return "The last requests all failed. Requests are refused until one is tried again.";
  if (told.paused) return "The host is paused. It gets no requests until it is resumed.";
  if (told.queued === 0) return "No request waits.";
  const one = told.queued === 1;
  return `${one ? "1 request waits" : `${number(told.queued)} requests wait`} because of: ${words(told.why)}.`;
}

// The same words as those of the page as served.
function limit(told) {
  if (!told) return "not measured";
  const measured = told.per_second == null ? "" : `${told.per_second}/s, ${Math.round(100 * told.confidence)} % sure; `;
  return measured + told.reason;
}

function note(told) {
  if (told.mode !== "enforce") return `No request waits for it: mode is ${told.mode}.`;
  if (told.probing) return "A shorter delay is being tried.";
  if (told.overrides.delay_ms != null) return "The configured part was set by hand.";
  return "";
}

function waiting(list) {
  byId("queue").replaceChildren(...list.map((one) => {
    const row = document.createElement("tr");
    const cell = (text, className = "") => {
      const element = row.insertCell();
      element.textContent = text;
      element.className = className;
    };
    cell(one.client ?? "curtsy");
    // The page already names the host; without a URL the request is curtsy's own fetch of robots.txt.
    cell(`${one.method ?? ""} ${(one.url ?? "robots.txt").replace(/^https?:\/\/[^/]+/, "")}`, "url");
    cell(span(one.waited_ms), "num");
    cell(one.expected_ms == null ? "–" : span(one.expected_ms), "num");
    return row;
  }));
}

function charts(history) {
  // Five, ten or fifteen minutes, as far as they go back.
  const points = Math.max(1, Math.ceil(history.delay_ms.length / 60)) * 60;
  const shape = (id) => ({ every: history.step_s, points, width: byId(id).clientWidth });
  if (history.delay_ms.length < 2) {
    ["chart-delay", "chart-line"].forEach((id) => {
      const wait = document.createElement("p");
      wait.className = "muted";
      wait.textContent = "Followed from now on; the first points come in a few seconds.";
      byId(id).replaceChildren(wait);
    });
    return;
  }
  const delay = [{ name: "delay", values: history.delay_ms, step: true }];
  byId("chart-delay").replaceChildren(...chart(delay, { ...shape("chart-delay"), say: (ms) => span(Math.round(ms)), label: "Delay over the last 15 minutes" }));
  const perMinute = 60 / history.step_s;
  const rate = history.requests.map((_, index) => {
    const lately = history.requests.slice(Math.max(0, index - perMinute + 1), index + 1);
    return Math.round((lately.reduce((total, value) => total + value, 0) / lately.length) * perMinute);
  });
  const line = [{ name: "requests a minute", values: rate }, { name: "waiting", values: history.queued, step: true }];
  byId("chart-line").replaceChildren(...chart(line, { ...shape("chart-line"), say: (value) => number(Math.round(value)), label: "Requests a minute and waiting requests over the last 15 minutes" }));
}

// Returns the lines for the configuration file that make the values permanent.
function toml(told) {
  const time = (ms) => (ms % 1_000 === 0 ? `"${ms / 1_000}s"` : `"${ms}ms"`);
  const lines = ["[[host]]", `match = ["${told.host}"]`, `delay = ${time(told.overrides.delay_ms ?? told.delay_ms)}`];
  if (told.overrides.burst != null) lines.push(`burst = ${told.overrides.burst}`);
  if (told.overrides.concurrency != null) lines.push(`concurrency = ${told.overrides.concurrency}`);
  return lines.join("\n");
}
