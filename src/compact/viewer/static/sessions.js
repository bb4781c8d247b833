// The list of sessions at the left: how full they are, and which are active.
//
// Owns: the rail, and the start screen. Must never: keep the data of a session.

import { h, visible, oneLine, whole, short, ago, Rows } from "./dom.js";
import { LAYERS, badge } from "./fold.js";
import { get, calmly } from "./api.js";
import { toSession } from "./places.js";

export class Rail {
  constructor(element) {
    this.sessions = [];
    this.moved = new Map();
    this.note = h("p", { class: "quiet pad" });
    this.filter = h("input", { type: "search", placeholder: "Filter sessions", "aria-label": "Filter sessions",
      autocomplete: "off", spellcheck: "false", oninput: () => this.fill() });
    this.count = h("span", { class: "count" });
    this.list = new Rows({ height: 54, label: "Sessions", draw: (one) => this.draw(one),
      open: (one) => { location.hash = toSession(one.session); }, empty: this.note });
    this.filter.addEventListener("keydown", (event) => {
      if (event.key === "ArrowDown" || event.key === "Enter") { this.list.element.focus(); event.preventDefault(); }
      if (event.key === "Enter" && this.list.items.length) location.hash = toSession(this.list.items[Math.max(0,
        this.list.at)].session);
    });
    this.source = h("p", { class: "source" });
    element.append(h("div", { class: "rail-head" }, h("h2", {}, "Sessions", this.count), this.filter), this.note,
      this.list.element, this.source);
    this.refresh = calmly(() => this.load(), 700);
    setInterval(() => this.list.again(), 30_000);
  }

  async load() {
    const loaded = await get("/api/sessions").catch((error) => ({ error }));
    if (loaded.error) {
      if (!this.sessions.length) this.note.textContent = loaded.error.message;
      this.onfail?.(loaded.error);
      return;
    }
    this.sessions = loaded.sessions;
    this.loaded = loaded;
    this.source.textContent = visible(loaded.source ?? "");
    this.source.title = visible(loaded.source ?? "");
    this.fill();
    this.onload?.(loaded);
  }

  fill() {
    const words = this.filter.value.toLowerCase();
    const some = this.sessions.filter((one) => one.session.toLowerCase().includes(words));
    some.forEach((one) => { one.key = one.session; });
    this.note.textContent = this.sessions.length ? "No session of this name." : "No session yet.";
    this.count.textContent = some.length === this.sessions.length ? whole(some.length)
      : `${some.length} of ${this.sessions.length}`;
    this.list.set(some, { keep: true });
  }

  // Rows arrived: highlight their sessions for a while.
  touched(rows) {
    const names = new Set(rows.map((row) => row.trace_id));
    names.forEach((name) => this.moved.set(name, Date.now()));
    this.list.again();
    clearTimeout(this.calm);
    this.calm = setTimeout(() => this.list.again(), 4100);
    this.refresh();
  }

  here(session) {
    if (this.current === session) return;
    this.current = session;
    this.list.again();
  }

  draw(one) {
    const share = one.window ? Math.min(1, (one.tokens ?? 0) / one.window) : 0;
    const live = Date.now() - (this.moved.get(one.session) ?? 0) < 4000;
    const empty = !one.folds && !one.tokens;
    return h("div", { class: `session${one.session === this.current ? " here" : ""}`, title: visible(one.session),
      "aria-current": one.session === this.current ? "page" : undefined },
      h("span", { class: "name", dir: "auto" }, oneLine(one.session) || "(no name)"),
      h("span", { class: "when" }, live && h("i", { class: "dot", title: "Events are arriving" }), ago(one.last)),
      h("span", { class: "meter", title: one.window ? `${whole(one.tokens)} of ${whole(one.window)} tokens` : "" },
        h("i", { style: { width: `${100 * share}%` } })),
      h("span", { class: "sums" }, empty ? `${whole(one.spans)} spans`
        : `${one.folds} compaction${one.folds === 1 ? "" : "s"}${one.window ? ` · ${short(one.tokens)}/${short(one.window)}` : ""}`),
      one.errors > 0 ? h("span", { class: "chip bad", title: `${one.errors} errors` }, `${one.errors} ✕`)
        : one.warnings > 0 && h("span", { class: "chip warn", title: `${one.warnings} warnings` },
        `${one.warnings} !`));
  }
}

const line = (text) => h("pre", { class: "line" }, text);

// The start screen, with instructions while there is no session.
export function welcome(loaded) {
  const origin = location.origin;
  const some = (loaded?.sessions ?? []).length > 0;
  return h("div", { class: "welcome" },
    h("h1", {}, some ? "Choose a session" : "No session yet"),
    h("p", {}, some
      ? "Open a session at the left to see what was compacted, when, why, at what cost, and where the originals are."
      : "This page shows live what every compaction of an agent's context kept and lost. It waits for events."),
    !some && [
      h("h2", {}, "Send it events, live"), h("p", {}, "in compact.yaml:"), line(`tracing:\n  ariadne_url: ${origin}`),
      h("p", {}, "or in the agent's environment:"), line(`COMPACT_TRACING_ARIADNE_URL=${origin}`),
      h("h2", {}, "Or open an archive or a file of events"), line("compact view .compact/archive\ncompact view events.jsonl"),
    ],
    h("h2", {}, "How to read a compaction"),
    h("ul", { class: "layers" }, LAYERS.map(({ id, name, says }) => h("li", {}, badge(id), h("b", {}, name),
      h("span", { class: "dim" }, says)))),
    loaded?.complaints?.length > 0 && h("div", { class: "notice warn" }, h("h2", {}, "Could not be read"),
      h("ul", {}, loaded.complaints.map((one) => h("li", {}, visible(one))))),
    loaded?.source && h("p", { class: "quiet" }, `Showing ${visible(loaded.source)}`));
}
