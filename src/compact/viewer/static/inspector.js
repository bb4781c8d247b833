// One span in full: its response, policy, counts and payload.
//
// Owns: showing a payload. Must never: trust its shape, because any program may send spans.

import { h, visible, oneLine, whole, money, lasted, clock, day, copied, longText } from "./dom.js";
import { citedText, grade } from "./fold.js";
import { toFold } from "./places.js";

const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value);
const ANSWERS = ["final_output", "output_text", "output", "result", "message", "content"];
const COUNTS = { messages_before: "messages before", messages_after: "messages after", folded: "folded",
  clipped: "clipped", pruned_count: "to compact", tokens_before: "tokens before", tokens_after: "tokens after",
  t_est: "tokens", max_tokens: "window", trigger: "trigger", budget: "budget",
  input_messages: "messages read", summary_tokens: "summary tokens", input_tokens: "input tokens",
  output_tokens: "output tokens", bytes: "bytes" };
const KEPT = { pinned: "kept: pinned", recent_turns: "kept: recent turns", tool_pairs: "kept: tool pairs",
  summary: "kept: summaries" };

function written(name, value) {
  if (typeof value === "number") {
    if (name === "cost_usd") return money(value);
    if (name === "duration") return lasted(value);
    if (name.endsWith("_pct") || name.endsWith("_ratio")) return `${(100 * value).toFixed(1).replace(/\.0$/, "")} %`;
    return Number.isInteger(value) ? whole(value) : String(value);
  }
  return oneLine(typeof value === "string" ? value : JSON.stringify(value));
}

const table = (title, pairs) => pairs.length > 0 && h("section", {}, h("h3", {}, title),
  h("dl", {}, pairs.map(([name, value, kind]) => [h("dt", {}, name), h("dd", { class: kind }, value)])));

// A payload as a tree that can be expanded.
export function jsonTree(value, name, depth = 0) {
  const label = name === undefined ? [] : [h("span", { class: "json-key" }, visible(String(name))), ": "];
  if (value !== null && typeof value === "object") {
    const entries = Object.entries(value);
    const size = Array.isArray(value) ? `[${entries.length}]` : `{${entries.length}}`;
    if (!entries.length) return h("div", { class: "json" }, label, h("span", { class: "dim" },
      size === "[0]" ? "[]" : "{}"));
    const box = h("details", { class: "json", open: depth < 2 && entries.length < 40 },
      h("summary", {}, label, h("span", { class: "dim" }, size)));
    const fill = () => {
      if (!box.open || box.children.length > 1) return;
      const some = entries.slice(0, 500).map(([key, item]) => jsonTree(item, key, depth + 1));
      box.append(...some);
      if (entries.length > 500) box.append(h("p", { class: "quiet" },
        `and ${whole(entries.length - 500)} more; copy the payload to see them`));
    };
    box.addEventListener("toggle", fill);
    fill();
    return box;
  }
  const kind = value === null ? "null" : typeof value;
  const text = visible(kind === "string" ? JSON.stringify(value) : String(value));
  const shown = h("span", { class: `json-${kind}` }, text.slice(0, 600));
  const more = text.length > 600 && h("button", { type: "button", class: "link", onclick: () => { more.remove();
    shown.textContent = text.slice(0, 200_000); } }, ` … ${whole(text.length - 600)} more`);
  return h("div", { class: "json" }, label, shown, more);
}

export class Inspector {
  constructor({ cite }) {
    this.cite = cite;
    this.body = h("div", { class: "inspected", tabindex: 0, role: "region", "aria-label": "The chosen span" });
    this.element = h("section", { class: "panel inspector", "aria-label": "Inspector" }, this.body);
    this.rest();
  }

  rest() {
    this.body.replaceChildren(h("div", { class: "teach" }, h("b", {}, "Nothing chosen"),
      h("p", {}, "Choose a span at the left to see its summary, its policy, its counts and its payload.")));
  }

  failed(message) {
    this.body.replaceChildren(h("p", { class: "notice bad" }, visible(message)));
  }

  show(span, row) {
    const data = isObject(span.data) ? span.data : {};
    const policy = isObject(data.policy) ? data.policy : {};
    const kept = isObject(data.kept) ? data.kept : {};
    const report = isObject(data.report) ? data.report : null;
    const answer = ANSWERS.map((name) => data[name]).find((value) => typeof value === "string" && value);
    const step = Number.isInteger(data.step) ? data.step : undefined;
    const folded = step > 0 && /^fold \d/.test(span.name ?? "");
    const payload = JSON.stringify(span, null, 2);
    const copy = h("button", { type: "button", class: "plain", onclick: () => copied(copy, payload) }, "Copy JSON");
    const start = row?.started ?? Date.parse(span.started_at) / 1000;
    const length = row && Number.isFinite(row.ended) ? row.ended - row.started : NaN;
    const failed = span.status === "error";
    const facts = [
      ["reason", data.reason], ["note", data.note], ["model", data.model], ["kind", data.kind], ["layout", data.layout],
        ["strategy", data.strategy], ["usage_pct", data.usage_pct],
      ["compression_ratio", data.compression_ratio], ["cost_usd", data.cost_usd], ["attempt", data.attempt],
        ["code", data.code], ["severity", data.severity], ["key", data.key],
    ].filter(([, value]) => value !== undefined && value !== null && value !== "").map(([name, value]) =>
      [name.replace(/_pct$/, "").replaceAll("_", " "), written(name, value)]);
    const counts = [
      ...Object.entries(COUNTS).filter(([name]) => typeof data[name] === "number").map(([name, label]) =>
        [label, whole(data[name])]),
      ...Object.entries(KEPT).filter(([name]) => typeof kept[name] === "number").map(([name, label]) =>
        [label, whole(kept[name])]),
      ...(isObject(data.breakdown) ? Object.entries(data.breakdown).map(([name, value]) =>
        [`of these ${oneLine(name)}`, written(name, value)]) : []),
    ];
    this.body.replaceChildren(...[
      h("header", {}, h("h2", {}, oneLine(span.name ?? "span")), h("span", { class: `chip ${failed ? "bad" : "ok"}` },
        failed ? "error" : "ok"), h("span", { class: "gap" }), copy),
      h("p", { class: "dim" }, `${day(start)} ${clock(start, "ms")}${Number.isFinite(length) ? ` · ${lasted(length)}` : ""}`),
      failed && h("p", { class: "notice bad" }, h("b", {}, oneLine(data.error_type ?? "Error")), " ",
        visible(data.message ?? ""), data.fallback && h("span", { class: "dim" }, ` Then: ${oneLine(data.fallback)}.`)),
      data.event === "compact.warning" && h("p", { class: "notice warn" }, visible(data.message ?? "")),
      folded && h("p", {}, h("a", { class: "button", href: toFold(span.trace_id, step) },
        `Open compaction ${step}, before and after`)),
      answer && !(failed && answer === data.message) && data.event !== "compact.warning"
        && h("section", { class: "response" }, h("h3", {}, "Response"),
        answer.length > 60_000 ? longText(answer) : citedText(answer, (first, last) => this.cite(first, last, step))),
      table("Facts", facts), table("Policy", Object.entries(policy).map(([name, value]) =>
        [name.replaceAll("_", " "), written(name, value)])), table("Counts", counts),
      report && table("Fidelity", [["score", String(report.score), `grade ${grade(report.score)}`],
        ...["kept", "repaired", "lost"].map((name) => [name, whole(report[name])])]),
      h("section", {}, h("h3", {}, "Payload"), jsonTree(span)),
    ].filter(Boolean));
    this.body.scrollTop = 0;
  }
}
