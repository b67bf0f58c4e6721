// The latest starts and holds of a host: starts as ticks, holds as bars, and the shortest gap below.

import { svg, text } from "./chart.js";
import { span, words } from "./format.js";

const HEIGHT = 74;
const [SIDE, TOP, BOTTOM] = [8, 8, 46]; // pixels left and right; where ticks begin and end
// Seconds that are shown, and seconds between two labels.
const SPANS = [[30, 10], [60, 15], [120, 30], [300, 60], [600, 120], [1_800, 600], [3_600, 900], [14_400, 3_600]];
const LEAST_GAP = 8; // pixels between two starts that are one delay apart: closer ones run together

// `told`: starts_ms and holds, in milliseconds from now. `width` in pixels.
export function timeline(told, { delay, width }) {
  const { starts_ms: starts, holds } = told;
  const room = width - 2 * SIDE;
  const wanted = ((delay || 1_000) / 1_000) * (room / LEAST_GAP);
  const oldest = -Math.min(0, ...starts, ...holds.map((hold) => hold.from_ms)) / 1_000;
  // As much as was recorded, as long as ticks stay apart.
  const [past, step] = SPANS.find(([seconds], index) => seconds >= oldest || (SPANS[index + 1]?.[0] ?? 0) > wanted) ?? SPANS.at(-1);
  // A hold that lasts gets a quarter of the width at most: the past is what explains.
  const ends = Math.max(0, ...holds.map((hold) => hold.until_ms)) / 1_000;
  const future = Math.min(ends, past / 3);
  const x = (ms) => SIDE + Math.min(1, Math.max(0, (ms / 1_000 + past) / (past + future))) * room;
  const shown = starts.filter((ms) => ms >= -past * 1_000);
  const bars = holds.filter((hold) => hold.until_ms > -past * 1_000).map((hold) => {
    const [from, until] = [x(hold.from_ms), x(hold.until_ms)];
    const title = svg("title", {}, [`held for ${span(hold.until_ms - hold.from_ms)}: ${words(hold.cause)}`]);
    return svg("rect", { class: "hold", x: from, y: TOP + 6, width: Math.max(2, until - from), height: BOTTOM - TOP - 12, rx: 3 }, [title]);
  });
  const ticks = shown.map((ms) => svg("line", { class: "tick", x1: x(ms), x2: x(ms), y1: TOP, y2: BOTTOM }));
  const axis = svg("g", { class: "grid" }, [svg("line", { x1: SIDE, x2: width - SIDE, y1: BOTTOM, y2: BOTTOM })]);
  const today = svg("line", { class: "mark", x1: x(0), x2: x(0), y1: TOP - 4, y2: BOTTOM });
  const label = `${shown.length} requests started in the last ${span(past * 1_000)}`;
  const drawn = svg("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, role: "img", "aria-label": label },
    [axis, ...bars, ...ticks, today, ...scale(x, [past, step, future], width)]);
  return [drawn, legend(shown, holds)];
}

function scale(x, [past, step, future], width) {
  const every = width > 420 ? step : past / 2;
  const marks = [];
  for (let ago = past; ago > 0; ago -= every) marks.push(text(x(-ago * 1_000), BOTTOM + 16, span(ago * 1_000), ago === past ? "start" : "middle"));
  marks.push(text(x(0), BOTTOM + 16, "now", future > past / 10 ? "middle" : "end"));
  if (future > past / 6) marks.push(text(width - SIDE, BOTTOM + 16, `in ${span(future * 1_000)}`, "end"));
  return marks;
}

// Says what the ticks are, with the shortest gap between two of them.
function legend(starts, holds) {
  const gaps = starts.slice(1).map((ms, index) => ms - starts[index]);
  const shortest = gaps.length ? `, at least ${(Math.min(...gaps) / 1_000).toFixed(2)} s apart` : "";
  const line = document.createElement("p");
  line.className = "legend";
  const entries = [["key-start", `starts${shortest}`], ...(holds.length ? [["key-hold", "held"]] : [])];
  line.append(...entries.map(([name, words]) => {
    const item = document.createElement("span");
    item.className = `key ${name}`;
    item.textContent = words;
    return item;
  }));
  return line;
}
