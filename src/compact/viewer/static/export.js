// The script of an exported compaction: one file, opened from disk, with everything in it.
//
// Owns: drawing the compaction from the element `#fold-data`. Must never: use the network.

import { h, visible, whole } from "./dom.js";
import { foldView, headline } from "./fold.js";

const data = JSON.parse(document.getElementById("fold-data").textContent);
const notice = h("p", { class: "notice", role: "status", hidden: true });

function embedded(key) {
  const found = key.line === undefined ? data.made?.[key.made] : data.messages?.[key.line];
  if (!found) throw new Error("This message is not in the exported file. Open the compaction in `compact view` to read it.");
  return found;
}

const view = foldView(data.fold, {
  message: async (key) => embedded(key),
  cite: (first, last, near) => {
    if (near) return near();
    notice.hidden = false;
    notice.textContent = `Message #${first} was compacted earlier, so it is not in this file. Open the session in \`compact view\` and follow the citation there.`;
  },
});
const turn = h("button", { type: "button", class: "plain icon", "aria-label": "Switch between light and dark",
  onclick: () => {
  const dark = getComputedStyle(document.documentElement).colorScheme === "dark"
    || (!document.documentElement.dataset.theme && matchMedia("(prefers-color-scheme: dark)").matches);
  document.documentElement.dataset.theme = dark ? "light" : "dark";
  view.redraw();
} }, "◐");
document.title = `Compaction ${data.fold.step} · ${visible(data.fold.session)}`;
document.body.className = "exported";
document.body.append(h("main", { id: "main" },
  h("div", { class: "head" }, headline(data.fold), h("span", { class: "dim" },
    `session ${visible(data.fold.session)} · ${whole(data.fold.before.length)} messages`), turn),
  notice, view.element));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => view.redraw());
