// The table of hosts. However many there are, only the visible ones are requested and drawn, and only cells that have
// changed are updated.

import { get } from "./api.js";
import { notable, number, seconds, span } from "./format.js";

const AHEAD = 12; // rows above and below the visible ones
const SOONEST = 1_000; // ms between two requests
const LATEST = 3_000;
const SHARE = 20; // the pause is this many times as long as the last request took

export class HostTable {
  #rows = new Map();
  #order = null; // the served rows stay until the first answer
  #top = spacer();
  #bottom = spacer();
  #busy = false;
  #again = false;
  #timer = null;
  #hurry = false;
  #total = 0;
  #first = 0;

  constructor({ scroll, body, wish, shown }) {
    Object.assign(this, { scroll, body, wish, shown });
    this.height = body.querySelector("tr")?.offsetHeight || 34;
    scroll.addEventListener("scroll", () => this.#hasGaps() && this.refresh(true), { passive: true });
    setInterval(() => document.hidden || this.#countDown(), 1_000);
  }

  // Requests the visible rows: as soon as the pause after the last request is over, or at once if the reader has
  // scrolled to or filtered for rows that are not drawn.
  refresh(hurry = false) {
    if (this.#busy || (this.#timer && !hurry)) {
      this.#again = true;
      this.#hurry ||= hurry;
      return;
    }
    clearTimeout(this.#timer);
    this.#timer = null;
    this.#ask();
  }

  // A change by the reader must show at once.
  restart() {
    this.scroll.scrollTop = 0;
    this.refresh(true);
  }

  async #ask() {
    [this.#busy, this.#again, this.#hurry] = [true, false, false];
    const began = performance.now();
    const first = Math.max(0, Math.floor(this.scroll.scrollTop / this.height) - AHEAD);
    const limit = Math.ceil(this.scroll.clientHeight / this.height) + 2 * AHEAD;
    try {
      const query = new URLSearchParams({ ...this.wish(), offset: first, limit: Math.min(limit, 1_000) });
      this.#draw(await get(`/hosts?${query}`));
    } catch {
      // The event stream reports the lost connection; the table keeps what it has.
    }
    this.#busy = false;
    if (this.#hurry) return this.#ask();
    this.#timer = setTimeout(() => {
      this.#timer = null;
      if (this.#again) this.#ask();
    }, Math.min(LATEST, Math.max(SOONEST, SHARE * (performance.now() - began))));
  }

  // Whether there are visible rows that are not drawn.
  #hasGaps() {
    const top = this.scroll.scrollTop / this.height;
    const bottom = Math.min(this.#total, top + this.scroll.clientHeight / this.height - 1);
    return top < this.#first || bottom > this.#first + (this.#order?.length ?? 0);
  }

  #draw({ total, offset, hosts, fleet }) {
    [this.#total, this.#first] = [total, offset];
    const known = this.#rows;
    this.#rows = new Map(hosts.map((host) => [host.host, known.get(host.host) ?? new Row()]));
    hosts.forEach((host, index) => this.#rows.get(host.host).show(host, offset + index));
    this.#top.firstChild.style.height = `${offset * this.height}px`;
    this.#bottom.firstChild.style.height = `${Math.max(0, total - offset - hosts.length) * this.height}px`;
    this.#top.hidden = offset === 0;
    this.#bottom.hidden = offset + hosts.length >= total;
    const order = hosts.map((host) => host.host);
    if (order.join("\n") !== this.#order?.join("\n")) {
      const focused = document.activeElement;
      this.body.replaceChildren(this.#top, ...[...this.#rows.values()].map((row) => row.element), this.#bottom);
      // An element that is inserted again loses the focus.
      if (focused?.isConnected && focused !== document.activeElement) focused.focus({ preventScroll: true });
    }
    this.#order = order;
    this.shown(total, fleet);
  }

  // Counts down without requests to the API.
  #countDown() {
    let over = false;
    for (const row of this.#rows.values()) over = row.tick() || over;
    if (over) this.refresh();
  }

  // Focuses the link of the row after the one with the focus, or before it.
  move(step) {
    const rows = [...this.#rows.values()];
    const now = rows.findIndex((row) => row.link === document.activeElement);
    const next = rows[now < 0 ? 0 : Math.min(rows.length - 1, Math.max(0, now + step))];
    next?.link.focus();
    next?.element.scrollIntoView({ block: "nearest" });
  }
}

class Row {
  constructor() {
    this.element = document.createElement("tr");
    this.link = document.createElement("a");
    this.state = document.createElement("span");
    this.bar = document.createElement("i");
    this.cells = {};
    for (const name of ["host", "state", "delay", "why", "queued", "flight", "next", "last", "visits"]) {
      const cell = document.createElement(name === "host" ? "th" : "td");
      cell.className = `c-${name}${["host", "state", "why"].includes(name) ? "" : " num"}`;
      this.cells[name] = cell;
    }
    this.cells.host.scope = "row";
    this.cells.host.append(this.link);
    this.cells.state.append(this.state);
    this.count = document.createElement("span");
    this.bar.className = "bar-mark";
    this.cells.queued.append(this.bar, this.count);
    this.element.append(...Object.values(this.cells));
  }

  show(host, index) {
    this.element.setAttribute("aria-rowindex", index + 2);
    if (this.link.textContent !== host.host) {
      this.link.textContent = host.host;
      this.link.href = `/hosts/${encodeURIComponent(host.host)}`;
    }
    this.until = host.next_available_s == null ? null : performance.now() + host.next_available_s * 1_000;
    this.held = host.held_s == null ? null : performance.now() + host.held_s * 1_000;
    put(this.state, host.state);
    this.state.className = `state is-${host.state}`;
    put(this.cells.delay, span(host.delay_ms));
    const [why, mark] = notable(host);
    put(this.cells.why, why);
    this.cells.why.className = `c-why ${mark}`;
    this.cells.why.title = host.unpaced_tunnels ? `${host.unpaced_tunnels} tunnels of the last hour were not paced inside` : "";
    put(this.cells.last, host.last_status == null ? "–" : String(host.last_status));
    this.cells.visits.title = host.tunnelled ? `${host.tunnelled} of them in tunnels: only paced` : "";
    put(this.count, number(host.queued));
    this.bar.style.inlineSize = `${Math.min(host.queued, 20) * 5}%`;
    put(this.cells.flight, number(host.in_flight));
    this.count.classList.toggle("is-zero", host.queued === 0);
    this.cells.flight.classList.toggle("is-zero", host.in_flight === 0);
    put(this.cells.visits, number(host.visits));
    this.element.classList.toggle("is-quiet", host.state === "idle");
    this.tick();
  }

  // Updates the time left. Returns whether the hold is over.
  tick() {
    const left = this.until == null ? null : Math.max(0, (this.until - performance.now()) / 1_000);
    put(this.cells.next, left === 0 ? "now" : seconds(left));
    const over = this.held != null && this.held <= performance.now();
    if (over) this.held = null;
    return over;
  }
}

function put(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function spacer() {
  const row = document.createElement("tr");
  row.className = "spacer";
  row.setAttribute("aria-hidden", "true");
  const cell = document.createElement("td");
  row.append(cell);
  return row;
}
