// Searching the archived messages of a session.
//
// Owns: the list of hits. Must never: mark a hit by markup; marks are elements around slices of text.

import { h, visible, oneLine, whole } from "./dom.js";
import { get } from "./api.js";
import { toFold, toSession } from "./places.js";

function marked(snippet, spans) {
  const parts = [];
  let done = 0;
  for (const [from, to] of spans ?? []) {
    if (from < done) continue;
    parts.push(visible(snippet.slice(done, from)), h("mark", {}, visible(snippet.slice(from, to))));
    done = to;
  }
  return [...parts, visible(snippet.slice(done))];
}

export class SearchPage {
  constructor(session, words) {
    Object.assign(this, { session, words });
    this.stop = new AbortController();
    this.list = h("ol", { class: "hits", "aria-label": "Results" });
    this.note = h("p", { class: "quiet", role: "status" }, "Searching …");
    this.element = h("div", { class: "page search-page" }, h("div", { class: "head" },
      h("h1", { dir: "auto" }, `“${oneLine(words)}”`), this.note), this.list);
    this.list.addEventListener("keydown", (event) => this.keyed(event));
  }

  async load() {
    const { session, words } = this;
    if (!words.trim()) {
      this.note.textContent = "Type what to look for: words, a path, an id.";
      return;
    }
    try {
      const { hits, took_ms: took } = await get("/api/search", { session, q: words, limit: 50 }, this.stop.signal);
      this.note.textContent = hits.length
        ? `${hits.length === 50 ? "the best 50" : whole(hits.length)} message${hits.length === 1 ? "" : "s"}, ${Math.max(1, Math.round(took ?? 0))} ms` : "";
      if (!hits.length) {
        this.list.replaceWith(h("div", { class: "welcome" }, h("h1", {}, "Nothing found"),
          h("p", {}, "Only archived messages are searched: a session without a compaction has none. Try fewer words, or a part of a path or an id.")));
        return;
      }
      this.list.append(...hits.map((hit, index) =>
        h("li", {}, h("a", { href: toFold(session, hit.step, hit.line), tabindex: index ? -1 : 0 },
        h("span", { class: "at" }, `#${hit.position}`), h("span", { class: "role" }, oneLine(hit.role)),
          h("span", { class: "dim" }, `compaction ${hit.step}`), h("span", { class: "snippet", dir: "auto" },
          marked(String(hit.snippet), hit.spans))))));
      if (document.activeElement === document.body) this.list.querySelector("a").focus();
    } catch (error) {
      if (error.name === "AbortError") return;
      this.note.textContent = "";
      this.list.replaceWith(h("p", { class: "notice bad" }, visible(error.message)));
    }
  }

  keyed(event) {
    const links = [...this.list.querySelectorAll("a")];
    const by = { ArrowDown: 1, j: 1, ArrowUp: -1, k: -1 }[event.key];
    const next = links[links.indexOf(document.activeElement) + (by ?? NaN)];
    if (!next) return;
    links.forEach((link) => { link.tabIndex = link === next ? 0 : -1; });
    next.focus();
    event.preventDefault();
  }

  back() {
    location.hash = toSession(this.session);
    return true;
  }

  redraw() {}

  leave() {
    this.stop.abort();
  }
}
