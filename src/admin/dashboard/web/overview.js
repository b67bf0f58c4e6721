// The first page: tiles, hosts, events.

import { follow, get } from "./api.js";
import { sparkline } from "./chart.js";
import { explainer } from "./explain.js";
import { number, span } from "./format.js";
import { copies, keys } from "./keys.js";
import { Feed } from "./live.js";
import { HostTable } from "./table.js";

const byId = (id) => document.getElementById(id);
const BEAT = 5_000; // ms between two points of the charts
const USUAL_SORT = "queued";

export function overview({ pulse, openHelp }) {
  const page = byId("overview");
  const view = reading();
  const explain = explainer({ form: byId("explain"), field: byId("url"), answer: byId("answer") });
  const table = new HostTable({
    scroll: byId("scroll"),
    body: byId("rows"),
    wish: () => view.wish(),
    shown: (total, fleet) => {
      byId("count").textContent = number(total);
      if (fleet) byId("turns").textContent = fleet === "redis" ? "turns from Redis, counts of this node" : "turns of this node alone";
      byId("nothing").hidden = total > 0 || page.classList.contains("is-fresh");
      byId("hosts").setAttribute("aria-rowcount", total + 1);
    },
  });
  view.changed = () => table.restart();
  const feed = new Feed({
    list: byId("feed"),
    pause: byId("pause-live"),
    onlyRefused: byId("only-refused"),
    explain: (url) => (byId("url").scrollIntoView({ block: "nearest" }), explain(url)),
  });

  let stale = true;
  async function beat() {
    if (document.hidden || !stale) return;
    stale = false;
    try {
      const [status, history] = await Promise.all([get("/status"), get("/history")]);
      pulse.show(status);
      page.classList.toggle("is-fresh", status.hosts.known === 0);
      notices(status);
      byId("traffic").textContent = traffic(status.traffic);
      // No event says that a node has lost its fleet or has it again.
      stale = tiles(status, history) || status.fleet != null;
    } catch {
      stale = true;
    }
  }
  setInterval(beat, BEAT);
  document.addEventListener("visibilitychange", () => (beat(), table.refresh()));
  beat();
  table.refresh();

  let last = null;
  follow(60, {
    told: (event) => {
      pulse.heard();
      if (event.event !== "status") {
        feed.tell(event);
        return;
      }
      put("waiting", number(event.waiting));
      if (last == null || event.hosts === 0 || last.hosts === 0) (stale = true), beat();
      stale = true;
      last = event;
      table.refresh();
    },
    lost: () => pulse.lost(),
  });

  copies(byId("copy-setup"), () => [...document.querySelectorAll(".recipe")].find((one) => one.offsetParent)?.innerText ?? "");
  keys({
    "/": () => byId("filter").focus(),
    j: () => table.move(1),
    k: () => table.move(-1),
    e: () => byId("url").focus(),
    "?": openHelp,
    Escape: (event) => {
      if (byId("filter").value) byId("filter").value = "", view.read();
      event.target.blur?.();
    },
  });
}

// The view that the reader chose: in the form, in the head of the table, and in the address, so that it can be saved.
function reading() {
  const query = new URLSearchParams(location.search);
  const view = { sort: query.get("sort") || USUAL_SORT, order: query.get("order") || "usual", changed: () => {} };
  const [filter, state, links] = [byId("filter"), byId("state"), [...document.querySelectorAll("[data-sort]")]];
  view.wish = () => {
    const wish = { sort: view.sort, order: view.order, filter: filter.value.trim(), state: state.value };
    return Object.fromEntries(Object.entries(wish).filter(([, value]) => value));
  };
  const mark = () => links.forEach((link) => {
    const sorted = link.dataset.sort === view.sort;
    const rising = (link.dataset.sort === "host") === (view.order === "usual");
    if (sorted) link.parentElement.setAttribute("aria-sort", rising ? "ascending" : "descending");
    else link.parentElement.removeAttribute("aria-sort");
  });
  view.read = () => {
    const { sort, order, ...rest } = view.wish();
    const query = new URLSearchParams({ ...rest, ...(sort !== USUAL_SORT && { sort }), ...(order !== "usual" && { order }) });
    history.replaceState(null, "", query.size ? `/?${query}` : "/");
    mark();
    view.changed();
  };
  links.forEach((link) => link.addEventListener("click", (event) => {
    event.preventDefault();
    view.order = view.sort === link.dataset.sort && view.order === "usual" ? "reverse" : "usual";
    view.sort = link.dataset.sort;
    view.read();
  }));
  filter.addEventListener("input", () => view.read());
  state.addEventListener("change", () => view.read());
  byId("search").addEventListener("submit", (event) => event.preventDefault());
  mark();
  return view;
}

const put = (tile, text) => {
  const figure = document.querySelector(`[data-tile="${tile}"] .figure`);
  if (figure.textContent !== text) figure.textContent = text;
};

// How polite the traffic was; the same as in src/admin/dashboard/overview.rs.
const traffic = ({ full, paced_only, unpaced_tunnels }) =>
  `${number(full)} requests fully polite, ${number(paced_only)} in tunnels only paced, ${number(unpaced_tunnels)} tunnels not paced`;

const sum = (values) => values.reduce((total, value) => total + value, 0);

// Draws the tiles. Returns whether any value is still above zero.
function tiles(status, history) {
  const minute = Math.round(60 / history.step_s);
  put("requests", number(sum(history.requests.slice(-minute))));
  put("waiting", number(status.waiting));
  put("wait", status.wait_p90_ms == null ? "–" : span(status.wait_p90_ms));
  put("abandoned", number(sum(history.abandoned)));
  put("denied", number(sum(history.denied)));
  put("not-sent", number(status.requests.cached));
  const series = { requests: history.requests, waiting: history.waiting, wait: history.wait_p90_ms.map((ms) => ms ?? 0), abandoned: history.abandoned, denied: history.denied };
  for (const [name, values] of Object.entries(series)) {
    const tile = document.querySelector(`[data-tile="${name}"]`);
    tile.querySelector(".spark")?.remove();
    tile.append(sparkline(values, `${name}, the last ${Math.round((values.length * history.step_s) / 60)} minutes`));
    tile.classList.toggle("is-notable", (name === "abandoned" || name === "denied") && sum(values) > 0);
  }
  return Object.values(series).some((values) => sum(values) > 0);
}

function notices(status) {
  const shown = status.notices.map(({ level, text }) => {
    const notice = document.createElement("p");
    notice.className = `notice is-${level}`;
    notice.textContent = text;
    return notice;
  });
  const now = shown.map((one) => one.textContent).join();
  const before = [...byId("notices").children].map((one) => one.textContent).join();
  if (now !== before) byId("notices").replaceChildren(...shown);
}
