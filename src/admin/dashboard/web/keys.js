// The keyboard, the theme and copying: what every page has.

export function keys(actions) {
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const typing = event.target.matches("input:not([type=checkbox], [type=radio]), select, textarea");
    if (typing && event.key !== "Escape") return;
    const action = actions[event.key];
    if (!action || document.querySelector("dialog[open]")) return;
    if (action(event) !== false) event.preventDefault();
  });
}

export function help() {
  const dialog = document.getElementById("help");
  const open = () => dialog.showModal();
  document.getElementById("keys").addEventListener("click", open);
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
  return open;
}

// Uses the theme that the reader chose, otherwise the system's.
export function theme() {
  const root = document.documentElement;
  const stored = (() => {
    try {
      return localStorage.getItem("theme");
    } catch {
      return null;
    }
  })();
  if (stored) root.dataset.theme = stored;
  document.getElementById("theme").addEventListener("click", () => {
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    try {
      localStorage.setItem("theme", root.dataset.theme);
    } catch {
      // Then the choice lasts until the page is closed.
    }
  });
}

// Copies the text, and confirms it on the button.
export function copies(button, text) {
  const words = button.textContent;
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text());
      button.textContent = "Copied";
    } catch {
      button.textContent = "Select and copy by hand";
    }
    setTimeout(() => (button.textContent = words), 2_000);
  });
}
