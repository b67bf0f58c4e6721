// The page of clients: what the server wrote, written again every few seconds, and the buttons that resume a client.

import { get, send } from "./api.js";
import { keys } from "./keys.js";
import { renew } from "./renew.js";

const BEAT = 3_000; // ms

const byId = (id) => document.getElementById(id);

export function clients({ pulse, openHelp }) {
  const say = (text, bad = false) => {
    byId("said").textContent = text;
    byId("said").classList.toggle("is-bad", bad);
  };

  const refresh = () => renew(["count", "users", "nothing", "more", "failing"], "resume");

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
