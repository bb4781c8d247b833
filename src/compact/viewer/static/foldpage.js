// The screen of one compaction, with links to the previous and next one, and back to a followed citation.
//
// Owns: fetching a compaction and its messages, and following citations. Must never: draw what fold.js draws.

import { h, visible, whole, money, lasted, clock, day, copied } from "./dom.js";
import { foldView, headline } from "./fold.js";
import { get, address } from "./api.js";
import { toFold, toSession } from "./places.js";

const known = new Map();

// The compactions of a session, cached so that the links to the neighbours need no request.
export const remember = (session, folds) => known.set(session, folds);

export class FoldPage {
  constructor(session, step, { cite, back }) {
    Object.assign(this, { session, step, cite, from: back });
    this.stop = new AbortController();
    this.head = h("div", { class: "head" }, h("h1", {}, `Compaction ${step}`));
    this.body = h("div", { class: "body" }, h("p", { class: "quiet pad" }, "Reading the compaction …"));
    this.element = h("div", { class: "page fold-page" }, this.head, this.body);
    this.turns(known.get(session) ?? []);
  }

  turns(folds) {
    const steps = folds.map((fold) => fold.step);
    this.around = { before: steps.filter((one) => one < this.step).at(-1),
      after: steps.find((one) => one > this.step) };
  }

  async load(line) {
    const { session, step } = this;
    const cached = known.get(session);
    if (cached?.find((one) => one.step === step)?.archived === false) {
      this.unknown(new Error("The archive that this viewer reads does not have this compaction."), { folds: cached });
      return;
    }
    // A request that was aborted or failed must not empty the cache: the page that is opened next reads it.
    const timeline = get("/api/timeline", { session }, this.stop.signal)
      .catch(() => ({ folds: known.get(session) ?? [] }));
    try {
      this.fold = await get("/api/fold", { session, step }, this.stop.signal);
    } catch (error) {
      if (error.name !== "AbortError") this.unknown(error, await timeline);
      return;
    }
    this.view = foldView(this.fold, {
      message: (key, everything) => get("/api/message", { session, step, ...key, whole: everything ? 1 : undefined },
        this.stop.signal),
      cite: (first, last, near) => this.cite(session, first, last, step, near),
      banner: () => this.returning(),
      opened: (at) => history.replaceState(null, "", toFold(session, step, at)),
    });
    this.heading(headline(this.fold), known.get(session) ?? []);
    this.body.replaceChildren(...[this.returning(), this.view.element].filter(Boolean));
    if (line !== undefined) this.view.reveal(line);
    const { folds } = await timeline;
    remember(session, folds);
    this.heading(headline(this.fold), folds);
  }

  heading(title, folds) {
    const { session, step } = this;
    this.turns(folds);
    const turn = (to, sign, key, name) => h("a", { class: "button", href: to ? toFold(session, to) : undefined,
      "aria-disabled": to ? undefined : "true", title: `${name} compaction (${key})`, "aria-label": `${name} compaction` }, sign);
    const copy = h("button", { type: "button", class: "button", onclick: () => copied(copy, location.href) },
      "Copy link");
    this.head.replaceChildren(title, h("div", { class: "actions" },
      turn(this.around.before, "‹", "[", "Previous"), turn(this.around.after, "›", "]", "Next"), copy,
      this.fold && h("a", { class: "button", href: address("/export", { session, step }), download: "",
        title: "One HTML file with this compaction, for a bug report" }, "Export")));
  }

  returning() {
    if (!this.from) return null;
    return h("p", { class: "notice came", role: "status" }, `${this.from.says} `,
      h("a", { href: this.from.hash }, `← Back to ${this.from.name}`));
  }

  unknown(error, timeline) {
    const { session, step } = this;
    const fold = timeline.folds.find((one) => one.step === step);
    this.heading(h("div", { class: "headline" }, h("h1", {}, `Compaction ${step}`),
      fold && h("ul", { class: "facts" }, h("li", {}, visible(fold.reason)),
      h("li", {}, h("b", {}, whole(fold.before)), " → ", h("b", {}, whole(fold.after)), " tokens"))), timeline.folds);
    const facts = fold && [
      ["reason", fold.reason], ["note", fold.note], ["tokens", `${whole(fold.before)} → ${whole(fold.after)}`],
        ["messages", Number.isFinite(fold.messages_before)
        ? `${whole(fold.messages_before)} → ${whole(fold.messages_after)}` : null],
      ["fidelity", Number.isFinite(fold.score) ? fold.score.toFixed(0) : null],
        ["cost", Number.isFinite(fold.cost_usd) ? money(fold.cost_usd) : null],
        ["took", Number.isFinite(fold.duration) ? lasted(fold.duration) : null],
        ["at", `${day(fold.time)} ${clock(fold.time)}`],
    ].filter(([, value]) => value);
    this.body.replaceChildren(h("div", { class: "welcome" },
      h("h1", {}, fold ? "No details of this compaction" : "Unknown compaction"),
      h("p", {}, visible(error.message)),
      facts && [h("h2", {}, "What the events contain"), h("dl", { class: "known" },
        facts.map(([name, value]) => [h("dt", {}, name), h("dd", {}, visible(value))])),
        h("h2", {}, "Why there are no details"),
        h("p", {}, "Events carry numbers, not messages. The messages before and after are in the archive, and this viewer has no archive with this compaction. Configure one in compact.yaml:"),
        h("pre", { class: "line" }, "storage:\n  adapter: fs\n  path: .compact/archive"), h("p", {}, "and open it:"),
          h("pre", { class: "line" }, "compact view .compact/archive")],
      h("p", {}, h("a", { href: toSession(session) }, "← Back to the session"))));
  }

  back() {
    location.hash = this.from?.hash ?? toSession(this.session);
    return true;
  }

  redraw() {
    this.view?.redraw();
  }

  leave() {
    this.stop.abort();
    this.view?.close();
  }
}
