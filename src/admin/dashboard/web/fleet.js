// The page of the fleet: what the server wrote, written again every few seconds, and the buttons that forget a node.

import { send } from "./api.js";
import { keys } from "./keys.js";
import { keepFresh, renew } from "./renew.js";

const BEAT = 2_000; // ms; a node tells about itself as often

const byId = (id) => document.getElementById(id);

export function fleet({ pulse, openHelp }) {
  const refresh = () => renew(["count", "source", "differ", "nodes"], "forget");

  byId("fleet").addEventListener("click", async (event) => {
    const node = event.target.dataset?.forget;
    if (!node) return;
    try {
      await send("DELETE", `/fleet/${encodeURIComponent(node)}`);
      byId("said").textContent = "Forgotten. A node that still runs joins again.";
      byId("said").classList.remove("is-bad");
      await refresh();
    } catch (problem) {
      byId("said").textContent = problem.message;
      byId("said").classList.add("is-bad");
    }
  });

  keepFresh(refresh, BEAT, pulse);
  keys({ u: () => location.assign("/"), "?": openHelp });
}
