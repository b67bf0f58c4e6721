// The page of clients: what the server wrote, written again every few seconds, and the buttons that resume a client.

import { send } from "./api.js";
import { keys } from "./keys.js";
import { keepFresh, renew } from "./renew.js";

const BEAT = 3_000; // ms

const byId = (id) => document.getElementById(id);

export function clients({ pulse, openHelp }) {
  const say = (text, bad = false) => {
    byId("said").textContent = text;
    byId("said").classList.toggle("is-bad", bad);
  };

  const refresh = () => renew(["count", "users", "nothing", "more", "failing"], "resume");

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

  keepFresh(refresh, BEAT, pulse);
  keys({ u: () => location.assign("/"), "?": openHelp });
}
