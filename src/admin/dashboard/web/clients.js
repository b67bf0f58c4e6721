// The page of clients: what the server wrote, written again every few seconds, and the buttons that resume a client.

import { get, send } from "./api.js";
import { keys } from "./keys.js";

const BEAT = 3_000; // ms

const byId = (id) => document.getElementById(id);

export function clients({ pulse, openHelp }) {
  const say = (text, bad = false) => {
    byId("said").textContent = text;
    byId("said").classList.toggle("is-bad", bad);
  };

  // Takes the parts that changed from a fresh copy of this page.
  async function refresh() {
    const answer = await fetch(location.href, { cache: "no-store" });
    if (!answer.ok) throw new Error(`curtsy answered ${answer.status}`);
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    const focused = document.activeElement?.dataset?.resume;
    for (const part of ["count", "users", "nothing", "more", "failing"]) {
      const [old, now] = [byId(part), fresh.getElementById(part)];
      if (old && now && old.outerHTML !== now.outerHTML) old.replaceWith(document.adoptNode(now));
    }
    if (focused) [...document.querySelectorAll("[data-resume]")].find((one) => one.dataset.resume === focused)?.focus();
  }

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

  byId("clients").addEventListener("click", async (event) => {
    const name = event.target.dataset?.resume;
    if (!name) return;
    try {
      await send("POST", `/clients/${encodeURIComponent(name)}/resume`);
      say(`${name} may continue.`);
      await refresh();
    } catch (problem) {
      say(problem.message, true);
    }
  });

  setInterval(beat, BEAT);
  document.addEventListener("visibilitychange", beat);
  beat();
  keys({ u: () => location.assign("/"), "?": openHelp });
}
