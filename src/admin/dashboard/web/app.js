// Starts the script of the present page, and what all pages have in common.

import { clients } from "./clients.js";
import { fleet } from "./fleet.js";
import { clock, seconds } from "./format.js";
import { help, keys, theme } from "./keys.js";
import { host } from "./host.js";
import { overview } from "./overview.js";

document.documentElement.classList.add("has-script");
theme();
const openHelp = help();

// The line at the top: does curtsy answer, and for how long has it been running?
const pulse = {
  element: document.getElementById("pulse"),
  show(status) {
    this.name = status.name;
    this.state = status.state;
    this.began = Date.now() - status.uptime_s * 1_000;
    this.draw();
  },
  heard() {
    if (this.gone) (this.gone = null), this.draw();
  },
  lost() {
    this.gone ??= new Date();
    this.draw();
  },
  draw() {
    const up = this.began && seconds((Date.now() - this.began) / 1_000);
    this.element.className = `pulse ${this.gone ? "is-gone" : this.state === "ready" ? "is-ready" : "is-bad"}`;
    const words = this.gone ? "no answer, trying again" : this.name ? `${this.name} · ${this.state === "ready" ? "running" : this.state} ${up}` : "";
    if (this.element.textContent !== words) this.element.textContent = words;
    // The numbers stay, marked as old: they are the last that is known.
    document.body.classList.toggle("is-stale", Boolean(this.gone));
    document.getElementById("stale").textContent = this.gone ? `curtsy has not answered since ${clock(this.gone)}. What is shown is from then.` : "";
  },
};
setInterval(() => pulse.draw(), 10_000);

const pages = { overview, host, clients, fleet };
const page = pages[document.body.dataset.page];
if (page) page({ pulse, openHelp });
else keys({ u: () => location.assign("/"), "?": openHelp });
