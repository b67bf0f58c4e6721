// Charts as SVG, drawn from lists of numbers with the newest last. No library, because there are only two kinds.

const NAMESPACE = "http://www.w3.org/2000/svg";

export function svg(name, attributes, children = []) {
  const element = document.createElementNS(NAMESPACE, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

// A small line without axes, for a tile.
export function sparkline(values, label) {
  const [width, height, count] = [120, 28, Math.max(values.length, 2)];
  const most = Math.max(1, ...values);
  const x = (index) => ((index + count - values.length) / (count - 1)) * width;
  const y = (value) => height - 2 - (value / most) * (height - 4);
  const points = values.map((value, index) => `${x(index).toFixed(1)},${y(value).toFixed(1)}`);
  const line = points.join(" L");
  const area = points.length > 1 ? `M${x(0).toFixed(1)},${height} L${line} L${width},${height} Z` : "";
  return svg("svg", { viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", class: "spark", role: "img", "aria-label": label }, [
    svg("path", { d: area, class: "area" }),
    svg("path", { d: points.length > 1 ? `M${line}` : "", class: "line" }),
  ]);
}

const FRAME = { height: 170, left: 44, right: 8, top: 10, bottom: 22 };

// A round number at or above the largest value.
function ceiling(value) {
  if (value <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((factor) => factor * power).find((round) => round >= value);
}

// Lines over time. `series`: [{ name, values, step }], all of one length; `say`: formats a number; `every`: seconds;
// `width` in pixels, so that text has the same size as elsewhere.
export function chart(series, { say, every, points, width, label }) {
  const { height, left, right, top, bottom } = FRAME;
  const most = ceiling(Math.max(0, ...series.flatMap((one) => one.values)));
  const x = (index, count) => left + ((points - count + index) / (points - 1)) * (width - left - right);
  const y = (value) => top + (1 - value / most) * (height - top - bottom);
  const grid = [0, 0.5, 1].map((share) => svg("g", { class: "grid" }, [
    svg("line", { x1: left, x2: width - right, y1: y(most * share), y2: y(most * share) }),
    text(left - 6, y(most * share) + 4, say(most * share), "end"),
  ]));
  const minutes = Math.round((points * every) / 60);
  const times = [0, 1, 2, 3, 4, 5].map((fifth) => {
    const ago = Math.round(minutes * (1 - fifth / 5));
    const words = ago === 0 ? "now" : fifth === 0 && width > 420 ? `${ago} min ago` : `${ago} min`;
    const anchor = fifth === 0 ? "start" : fifth === 5 ? "end" : "middle";
    return text(left + (fifth / 5) * (width - left - right), height - 6, words, anchor);
  });
  const lines = series.map((one, index) => svg("path", { class: `series series-${index}`, d: path(one, x, y) }));
  const mark = svg("line", { class: "mark", x1: 0, x2: 0, y1: top, y2: height - bottom, visibility: "hidden" });
  const drawn = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label }, [...grid, ...times, ...lines, mark]);
  const legend = document.createElement("p");
  legend.className = "legend";
  const read = (index) => legend.replaceChildren(...series.map((one, number) => entry(one, number, index, say)));
  read(-1);
  drawn.addEventListener("pointermove", (event) => {
    const at = drawn.getBoundingClientRect();
    const share = (((event.clientX - at.left) / at.width) * width - left) / (width - left - right);
    const count = series[0].values.length;
    const index = Math.round(share * (points - 1)) - (points - count);
    const inside = index >= 0 && index < count;
    mark.setAttribute("visibility", inside ? "visible" : "hidden");
    if (inside) ["x1", "x2"].forEach((end) => mark.setAttribute(end, x(index, count)));
    read(inside ? index : -1);
  });
  drawn.addEventListener("pointerleave", () => (mark.setAttribute("visibility", "hidden"), read(-1)));
  return [drawn, legend];
}

export function text(x, y, words, anchor) {
  return svg("text", { x, y, "text-anchor": anchor }, [words]);
}

function path({ values, step }, x, y) {
  const at = (index) => [x(index, values.length).toFixed(1), y(values[index]).toFixed(1)];
  return values.map((_, index) => {
    const [across, down] = at(index);
    if (index === 0) return `M${across},${down}`;
    return step ? `H${across}V${down}` : `L${across},${down}`;
  }).join("");
}

function entry(one, number, index, say) {
  const item = document.createElement("span");
  item.className = `key key-${number}`;
  const value = one.values.at(index);
  item.textContent = value == null ? one.name : `${one.name} ${say(value)}`;
  return item;
}
