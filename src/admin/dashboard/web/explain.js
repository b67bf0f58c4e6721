// "Why would it wait?": one question to the API, and its answer in a few lines.

import { get } from "./api.js";
import { refusal, span, words } from "./format.js";

export function explainer({ form, field, answer }) {
  async function ask(url) {
    field.value = url;
    answer.replaceChildren(line("p", "asking …", "muted"));
    try {
      const told = await get(`/explain?url=${encodeURIComponent(url)}`);
      answer.replaceChildren(...say(told));
    } catch (problem) {
      answer.replaceChildren(line("p", problem.message, "is-bad"));
    }
  }
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    ask(field.value);
  });
  return ask;
}

function line(name, text, className = "") {
  const element = document.createElement(name);
  element.textContent = text;
  element.className = className;
  return element;
}

function say(told) {
  const lines = [verdict(told)];
  if (told.warning) lines.push(line("p", capital(told.warning), "notice"));
  if (told.rule) lines.push(line("p", `robots.txt line ${told.rule.line}, for ${told.group ?? "*"}: ${told.rule.rule}`, "code"));
  lines.push(line("p", `For client ${told.client}, ${WAYS[told.via] ?? told.via}.`, "muted"));
  const unpaced = told.via === "tunnel" ? told.known?.unpaced_tunnels?.count : 0;
  if (unpaced) lines.push(line("p", `${unpaced} of the last hour's tunnels to this host were not paced inside.`, "notice"));
  const copy = stored(told.cache);
  if (copy && told.allowed) lines.push(line("p", copy));
  if (told.delay) {
    lines.push(line("p", `The delay is ${span(told.delay_ms)}, the largest of`));
    lines.push(largest(told.delay));
  }
  if (told.known?.held_s) lines.push(line("p", `The host is held for ${span(Math.round(told.known.held_s * 1_000))}: ${words(told.known.hold_cause)}.`));
  return lines;
}

// What curtsy sees of the request.
const WAYS = { plain: "sent plain", tunnel: "through a tunnel: paths are hidden", intercepted: "through a tunnel that curtsy decrypts" };

const capital = (text) => text[0].toUpperCase() + text.slice(1);

const age = (cache) => (cache.ttl_s > 0 ? `is fresh for ${span(cache.ttl_s * 1_000)}` : `expired ${span(-cache.ttl_s * 1_000)} ago`);

// What the cache has, if it has not answered.
function stored(cache) {
  if (cache?.state === "validate") return `A stored answer would be validated: it ${age(cache)}.`;
  return cache?.not_stored ? `The last answer was not stored: ${cache.not_stored}.` : "";
}

function verdict(told) {
  const paragraph = document.createElement("p");
  const [word, kind, rest] = (() => {
    if (told.allowed === false) return ["denied", "bad", `: ${told.trouble ?? refusal(told.refusal)}`];
    if (told.allowed == null && told.refusal?.startsWith("origin-")) return ["unreachable", "bad", `: ${told.trouble}`];
    if (told.allowed == null) return ["unknown", "wait", `: ${told.trouble ?? "robots.txt could not be fetched in time"}`];
    if (["fresh", "stale"].includes(told.cache?.state)) return ["allowed", "good", `, from the cache: it ${age(told.cache)}`];
    if (told.refusal) return ["not now", "wait", `: ${refusal(told.refusal)}`];
    if (told.wait_ms > 0) return ["allowed", "good", `, and would start in ${span(told.wait_ms)}: it waits for ${words(told.why)}`];
    return ["allowed", "good", ", and would start at once"];
  })();
  paragraph.append(line("b", word, `verdict is-${kind}`), rest);
  return paragraph;
}

// The parts of a delay; the one that counts is marked.
export function largest(delay) {
  const list = document.createElement("ul");
  list.className = "parts";
  list.append(...parts(delay));
  return list;
}

export function parts(delay) {
  const all = [["configured", delay.configured_ms], ["robots", delay.robots_ms], ["learned", delay.learned_ms], ["response-time", delay.response_ms]];
  return all.filter(([why, ms]) => ms > 0 || why !== "response-time").map(([why, ms]) => {
    const item = document.createElement("li");
    item.classList.toggle("is-largest", why === delay.why);
    item.append(line("span", words(why)), " ", line("b", ms > 0 ? span(ms) : "–"));
    return item;
  });
}
