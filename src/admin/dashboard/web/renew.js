// Takes parts of the page from a fresh copy of it, for pages that the server writes.

import { get } from "./api.js";

const byId = (id) => document.getElementById(id);

// `parts` are ids; `button` is the data attribute of the buttons in them, so that one keeps the focus.
export async function renew(parts, button) {
  const answer = await fetch(location.href, { cache: "no-store" });
  if (!answer.ok) throw new Error(`curtsy answered ${answer.status}`);
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
  const focused = document.activeElement?.dataset?.[button];
  for (const part of parts) {
    const [old, now] = [byId(part), fresh.getElementById(part)];
    if (old && now && old.outerHTML !== now.outerHTML) old.replaceWith(document.adoptNode(now));
  }
  if (focused) [...document.querySelectorAll(`[data-${button}]`)].find((one) => one.dataset[button] === focused)?.focus();
}

// Calls `refresh` now and every `every` ms while the page is seen, and shows whether curtsy answers.
export function keepFresh(refresh, every, pulse) {
  async function beat() {
    if (document.hidden) return;
    try {
      pulse.show(await get("/status"));
      pulse.heard();
      await refresh();
    } catch {
      pulse.lost();
    }
  }
  setInterval(beat, every);
  document.addEventListener("visibilitychange", beat);
  beat();
}
