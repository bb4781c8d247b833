// A session: its numbers, its timeline, its spans.
//
// Owns: fetching them and refreshing them. Must never: draw what timeline, tree and inspector draw.

import { h, visible, whole, short, money } from "./dom.js";
import { grade } from "./fold.js";
import { remember } from "./foldpage.js";
import { get, calmly } from "./api.js";
import { toFold, toSpan, toSession } from "./places.js";
import { Timeline } from "./timeline.js";
import { Tree } from "./tree.js";
import { Inspector } from "./inspector.js";

const [FIRST, PAGE] = [400, 5000];

export class SessionPage {
  constructor(session, { cite }) {
    this.session = session;
    this.head = h("div", { class: "head" });
    this.timeline = new Timeline({ open: (step) => { location.hash = toFold(session, step); },
      ranged: (range) => this.tree.within(range) });
    this.tree = new Tree({ choose: (row) => { history.replaceState(null, "", toSpan(session, row.span_id));
      this.inspect(row.span_id); } });
    this.tree.follow = () => this.timeline.follow;
    this.inspector = new Inspector({ cite: (first, last, step) => cite(session, first, last, step) });
    this.element = h("div", { class: "page session-page" }, this.head, this.timeline.element,
      h("div", { class: "split" }, this.tree.element, this.inspector.element));
    this.stop = new AbortController();
    this.last = 0;
    this.shown = null;
    this.refresh = calmly(() => this.measure(), 120);
    this.numbers({ folds: [], marks: [], points: [] });
  }

  async load(span) {
    const first = this.measure();
    try {
      await this.read();
      if (!this.tree.nodes.size) this.tree.note.textContent = "No event of a session of this name is known here. It shows up with its first one.";
    } catch (error) {
      if (error.name === "AbortError") return;
      this.tree.note.textContent = error.message;
    }
    await first;
    if (span) this.choose(span);
    else this.newest();
  }

  async read() {
    for (let more = true; more;) {
      const limit = this.last ? PAGE : FIRST;
      const page = await get("/api/spans", { session: this.session, after: this.last, limit }, this.stop.signal);
      if (page.spans.length) this.tree.take(page.spans);
      more = page.spans.length >= limit && page.last > this.last;
      this.last = page.last;
    }
  }

  // The stream connects or reconnects: everything before is fetched again.
  catchUp() {
    this.read().catch(() => {});
    this.refresh();
  }

  async measure() {
    try {
      const data = await get("/api/timeline", { session: this.session }, this.stop.signal);
      this.timeline.set(data);
      this.numbers(data);
      remember(this.session, data.folds);
    } catch (error) {
      if (error.name !== "AbortError") this.head.replaceChildren(h("h1", { dir: "auto" }, visible(this.session)),
        h("p", { class: "notice bad" }, visible(error.message)));
    }
  }

  numbers({ folds, marks, points }) {
    const standing = folds.filter((fold) => !fold.undone);
    const saved = standing.reduce((sum, fold) => sum + Math.max(0, fold.before - fold.after), 0);
    const priced = folds.filter((fold) => Number.isFinite(fold.cost_usd));
    const scored = folds.filter((fold) => Number.isFinite(fold.score));
    const lowest = scored.reduce((low, fold) => (low && low.score <= fold.score ? low : fold), null);
    const fallen = standing.filter((fold) => fold.fallback).length;
    const errors = marks.filter((mark) => mark.kind === "error").length;
    const warnings = marks.length - errors;
    const now = points.at(-1);
    const figure = (name, value, kind = "", title = "") => h("div", { class: "figure", title }, h("dt", {}, name),
      h("dd", { class: kind }, value));
    this.head.replaceChildren(
      h("h1", { dir: "auto", title: visible(this.session) }, visible(this.session) || "(no name)"),
        h("span", { class: "gap" }),
      h("dl", { class: "figures" },
        figure("In the window", now ? [whole(now[1]), h("small", {}, now[2] ? ` of ${short(now[2])}` : "")] : "–"),
        figure("Compactions", [whole(standing.length), fallen > 0 && h("small", { class: "fell" }, ` ${fallen} fell back`),
          folds.length > standing.length && h("small", {}, ` + ${folds.length - standing.length} undone`)]),
        figure("Tokens saved", short(saved), "", `${whole(saved)} tokens, over all compactions that were not undone`),
        figure("Cost", priced.length ? money(priced.reduce((sum, fold) => sum + fold.cost_usd, 0)) : "–", "",
          "What the summaries cost, as far as prices are known"),
        figure("Lowest fidelity", lowest ? h("a", { href: toFold(this.session, lowest.step) }, lowest.score.toFixed(0),
          h("small", {}, ` compaction ${lowest.step}`)) : "–", `grade ${grade(lowest?.score)}`),
        figure("Errors", [whole(errors), warnings > 0 && h("small", {},
          ` + ${warnings} warning${warnings === 1 ? "" : "s"}`)], errors ? "bad" : "")));
  }

  onrows(rows) {
    const own = rows.filter((row) => row.trace_id === this.session);
    if (!own.length) return;
    this.tree.take(own);
    this.refresh();
    if (!this.shown) this.newest();
    if (this.shown && own.some((row) => row.span_id === this.shown)) this.inspect(this.shown);
  }

  // Until the user chooses a span, the newest compaction is shown.
  newest() {
    const fold = this.tree.roots.findLast((node) => /^fold\b/.test(node.row.name));
    if (fold && fold.row.id !== this.offered) {
      this.offered = fold.row.id;
      this.inspect(fold.row.span_id, true);
    }
  }

  choose(span) {
    if (this.tree.reveal(span)) this.inspect(span);
    else this.inspector.failed("This span is not known here. The ring keeps the newest spans; older ones are in the archive's events.");
  }

  async inspect(span, offered = false) {
    if (!offered) {
      this.shown = span;
      this.element.classList.add("inspecting");
    }
    try {
      const whole = await get("/api/span", { session: this.session, span_id: span }, this.stop.signal);
      if (this.shown === (offered ? null : span)) this.inspector.show(whole, this.tree.nodes.get(span)?.row);
    } catch (error) {
      if (error.name !== "AbortError") this.inspector.failed(error.message);
    }
  }

  // Esc: close the span; returns whether one was open.
  back() {
    if (!this.shown) return false;
    this.shown = null;
    this.element.classList.remove("inspecting");
    this.offered = null;
    this.inspector.rest();
    this.newest();
    history.replaceState(null, "", toSession(this.session));
    this.tree.rows.element.focus({ preventScroll: true });
    return true;
  }

  redraw() {
    this.timeline.draw();
  }

  leave() {
    this.stop.abort();
    this.timeline.observer.disconnect();
  }
}
