// Calls and their events as a tree, each with a bar on one time axis.
//
// Owns: the hierarchy of rows, which are open, and the bars. Must never: fetch, or read a payload.

import { h, oneLine, whole, lasted, clock, Rows } from "./dom.js";

const RUN = 3;
const idle = (node) => node.row.name === "preflight" && node.row.status === "ok" && !node.failed;
const took = (row) => (Number.isFinite(row.started) && Number.isFinite(row.ended) ? Math.max(0, row.ended - row.started)
  : NaN);
const plain = (name) => oneLine(name).replace(/^compact\./, "");
const earlier = (one, other) => (one.row.started ?? 0) - (other.row.started ?? 0) || one.row.id - other.row.id;

export class Tree {
  constructor({ choose }) {
    this.nodes = new Map();
    this.roots = [];
    this.orphans = new Map();
    this.opened = new Map();
    this.show = "all";
    this.note = h("p", { class: "quiet pad" }, "No event yet.");
    this.rows = new Rows({
      label: "Spans", role: "tree", item: "treeitem", empty: this.note, draw: (line) => this.draw(line),
      choose: (line) => { if (line.node) choose(line.node.row); },
      open: (line, index, event) => { if (!line.node || event.target.closest?.(".twist")
        || event.type === "keydown") this.toggle(line); },
      keys: (event, line, index) => this.keyed(event, line, index),
    });
    this.ticks = h("div", { class: "ticks" });
    this.count = h("span", { class: "count" });
    this.ways = [["all", "All"], ["folds", "Compactions"], ["errors", "Errors"]].map(([id, name]) =>
      h("button", { type: "button", "data-show": id, "aria-pressed": id === "all", onclick: () => this.only(id) },
      name));
    this.element = h("section", { class: "panel spans", "aria-label": "Span tree" },
      h("h2", {}, "Spans", this.count, h("span", { class: "gap" }), h("span",
        { class: "choice", role: "group", "aria-label": "Which spans" }, this.ways)),
      h("div", { class: "tree-head", "aria-hidden": "true" }, h("span", {}, "Name"), h("span", {}, "What it says"),
        h("span", { class: "right" }, "Took"), this.ticks),
      this.note, this.rows.element);
  }

  only(id) {
    this.show = id;
    this.ways.forEach((way) => way.setAttribute("aria-pressed", way.dataset.show === id));
    this.flatten();
  }

  take(rows) {
    for (const row of rows) {
      const known = this.nodes.get(row.span_id);
      if (known) {
        if (row.id >= known.row.id) known.row = row;
        if (row.status === "error") this.fail(known);
        continue;
      }
      const node = { row, children: this.orphans.get(row.span_id) ?? [], parent: null, failed: false };
      this.orphans.delete(row.span_id);
      for (const child of node.children) {
        child.parent = node;
        const at = this.roots.indexOf(child);
        if (at >= 0) this.roots.splice(at, 1);
      }
      this.nodes.set(row.span_id, node);
      const parent = this.nodes.get(row.parent_id);
      if (parent && parent !== node) {
        node.parent = parent;
        parent.children.push(node);
        if (parent.children.length > 1 && earlier(parent.children.at(-2), node) > 0) parent.children.sort(earlier);
      } else {
        if (row.parent_id) this.orphans.set(row.parent_id, [...(this.orphans.get(row.parent_id) ?? []), node]);
        this.roots.push(node);
      }
      if (row.status === "error" || node.children.some((child) => child.failed)) this.fail(node);
    }
    this.roots.sort(earlier);
    const { element } = this.rows;
    const end = element.scrollTop + element.clientHeight >= element.scrollHeight - 40
      && !element.contains(document.activeElement);
    this.flatten();
    if (end && this.follow?.()) element.scrollTop = element.scrollHeight;
  }

  fail(node) {
    for (let one = node; one && !one.failed; one = one.parent) one.failed = true;
  }

  isOpen(key, otherwise) {
    return this.opened.get(key) ?? otherwise;
  }

  wanted(node) {
    return this.show === "all" || (this.show === "folds" ? /^fold\b/.test(node.row.name) : node.failed
      || node.row.name === "compact.warning" || node.children.some((child) => child.row.name === "compact.warning"));
  }

  flatten() {
    const lines = [];
    const add = (node, level) => {
      const open = this.isOpen(node.row.span_id, level === 1 && (/^fold\b/.test(node.row.name) || node.failed)
        && this.roots.length < 5000);
      lines.push({ key: node.row.span_id, node, level, open: node.children.length ? open : undefined });
      if (open) node.children.forEach((child) => add(child, level + 1));
    };
    for (let at = 0; at < this.roots.length;) {
      const root = this.roots[at];
      if (!this.wanted(root)) { at += 1; continue; }
      let end = at;
      while (end < this.roots.length && idle(this.roots[end])) end += 1;
      if (end - at < RUN) {
        add(root, 1);
        at += 1;
        continue;
      }
      const run = this.roots.slice(at, end);
      const key = `run-${root.row.span_id}`;
      const open = this.isOpen(key, false);
      lines.push({ key, run, level: 1, open });
      if (open) run.forEach((node) => add(node, 2));
      at = end;
    }
    let [from, to] = [Infinity, -Infinity];
    for (const { row } of this.roots) {
      if (Number.isFinite(row.started)) from = Math.min(from, row.started);
      if (Number.isFinite(row.ended)) to = Math.max(to, row.ended);
    }
    this.whole = from < to ? [from, to] : [from, from + 1];
    this.count.textContent = whole(this.nodes.size);
    this.rows.set(lines, { keep: true });
    this.axis();
  }

  within(range) {
    this.range = range;
    this.axis();
    this.rows.again();
  }

  axis() {
    const [from, to] = this.range ?? this.whole ?? [0, 1];
    if (!Number.isFinite(from)) return this.ticks.replaceChildren();
    const detail = to - from < 2 ? "ms" : "s";
    const ends = [["0", clock(from, detail)], ["100%", `+${lasted(to - from)}`]];
    this.ticks.replaceChildren(...ends.map(([left, label]) => h("span", { style: { left } }, label)));
  }

  bar(started, ended, kind) {
    const [from, to] = this.range ?? this.whole;
    if (!Number.isFinite(started) || to <= from) return null;
    const [left, right] = [(started - from) / (to - from), ((ended ?? started) - from) / (to - from)];
    if (right < 0 || left > 1) return h("i", { class: "outside", style: left > 1 ? { right: "0" } : { left: "0" } },
      left > 1 ? "›" : "‹");
    const start = Math.max(0, left);
    return h("i", { class: `span-bar ${kind}`, style: { left: `min(${100 * start}%, 100% - 3px)`,
      width: `${100 * (Math.min(1, right) - start)}%` } });
  }

  draw({ node, run, level, open }) {
    const twist = h("span", { class: "twist", "aria-hidden": "true" }, open === undefined ? "" : open ? "▾" : "▸");
    if (run) {
      const [first, last] = [run[0].row, run.at(-1).row];
      const row = h("div", { class: "span run", "aria-level": 1, "aria-expanded": open },
        h("span", { class: "label", style: { "--level": 0 } }, twist, h("span", { class: "kind none" }),
          `${whole(run.length)} preflights`),
        h("span", { class: "brief" }, "nothing due"), h("span", { class: "took" },
          lasted(run.reduce((sum, one) => sum + (took(one.row) || 0), 0))),
        h("span", { class: "lane" }, this.bar(first.started, last.ended, "idle")));
      return row;
    }
    const { row, failed } = node;
    const kind = row.status === "error" ? "error" : row.kind === "llm" ? "llm" : /^fold\b/.test(row.name) ? "fold"
      : row.name === "compact.warning" ? "warning" : "step";
    return h("div", { class: `span ${kind}${failed ? " failed" : ""}`, "aria-level": level, "aria-expanded": open,
      "data-span": row.span_id },
      h("span", { class: "label", style: { "--level": level - 1 } }, twist,
        h("span", { class: `kind ${kind}`, title: kind === "llm" ? "a model's answer" : kind }),
        h("span", { class: "name" }, plain(row.name) || "(no name)"),
        failed && h("span", { class: "bang", title: "an error" }, "✕")),
      h("span", { class: "brief", dir: "auto" }, oneLine(row.brief)),
      h("span", { class: "took" }, Number.isFinite(row.ended) ? took(row) > 0 ? lasted(took(row)) : "" : "running"),
      h("span", { class: "lane" }, this.bar(row.started, row.ended, kind)));
  }

  toggle(line, to) {
    if (line.open === undefined) return false;
    this.opened.set(line.key, to ?? !line.open);
    this.flatten();
    return true;
  }

  keyed(event, line, index) {
    if (!line) return false;
    if (event.key === "ArrowRight" || event.key === "l") {
      if (line.open === false) return this.toggle(line, true);
      if (line.open) this.rows.select(index + 1);
      return true;
    }
    if (event.key === "ArrowLeft" || event.key === "h") {
      if (line.open) return this.toggle(line, false);
      for (let at = index - 1; at >= 0; at -= 1) if (this.rows.items[at].level < line.level) { this.rows.select(at);
        break; }
      return true;
    }
    return false;
  }

  // Scroll to a span, opening its parents and clearing filters as needed.
  reveal(id) {
    const node = this.nodes.get(id);
    if (!node) return false;
    for (let one = node.parent; one; one = one.parent) this.opened.set(one.row.span_id, true);
    let at = () => this.rows.items.findIndex((line) => line.key === id);
    if (!this.wanted(node.parent ?? node)) this.only("all");
    else this.flatten();
    if (at() < 0) {
      const run = this.rows.items.find((line) => line.run?.some((one) => one === node || one === node.parent));
      if (run) this.toggle(run, true);
    }
    const index = at();
    if (index >= 0) this.rows.show(index);
    return index >= 0;
  }
}
