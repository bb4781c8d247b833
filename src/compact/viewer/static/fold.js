// One compaction, before and after: strips, lists, summary, fidelity, laws, and the reader. Also in an exported file.
//
// Owns: `foldView` and the names of the layers. Must never: fetch; the caller passes a function that loads messages.

import { h, styled, visible, oneLine, whole, short, money, lasted, clock, day, colour, canvasOf, copied, Rows, card, longText, Drawer } from "./dom.js";

export const LAYERS = [
  { id: "pinned", letter: "P", name: "Pinned",
    says: "Never compacted: system and developer messages, and protected ones." },
  { id: "summary", letter: "S", name: "Summary", says: "Written by a compaction, in place of the folded messages." },
  { id: "recent", letter: "R", name: "Recent", says: "Kept unchanged because it is recent." },
  { id: "tools", letter: "T", name: "Tool pair", says: "A tool call or its result, kept together." },
  { id: "folded", letter: "F", name: "Folded", says: "No longer sent. The original is in the archive." },
  { id: "clipped", letter: "C", name: "Clipped", says: "Sent shortened. The original is in the archive." },
];
const LAYER = Object.fromEntries(LAYERS.map((layer) => [layer.id, layer]));
const CITED = /\[#\d{1,9}(?:(?: ?[-–] ?|, ?)#?\d{1,9})*\]/g;
const STRETCH = /(\d{1,9})(?: ?[-–] ?#?(\d{1,9}))?/g;

export const badge = (layer) => h("span", { class: `layer ${LAYER[layer] ? layer : "recent"}`,
  title: LAYER[layer]?.name }, LAYER[layer]?.letter ?? "?");

export function grade(score) {
  return !Number.isFinite(score) ? "none" : score >= 85 ? "good" : score >= 70 ? "fair" : "poor";
}

// The text with its citations as buttons.
export function citedText(text, cite) {
  const box = h("div", { class: "text prose" });
  for (const line of visible(text).split("\n")) box.append(citedLine(line, cite));
  return box;
}

// Summaries are plain text; a short line without punctuation is shown as a heading.
function citedLine(shown, cite) {
  const kind = /^<[^<>]+>$/.test(shown) ? "tag"
    : /^(?:#{1,4} )?\p{Lu}[^.:;,!?[\]]{1,48}:?$/u.test(shown) ? "title" : /^\s*(?:[-*•]|\d+\.) /.test(shown) ? "item"
    : "";
  const box = h("div", { class: `text-line ${kind}`, dir: "auto" });
  let done = 0;
  for (const found of shown.matchAll(CITED)) {
    box.append(shown.slice(done, found.index));
    for (const [at, [said, first, last]] of [...found[0].matchAll(STRETCH)].entries()) {
      const stretch = [Number(first), Number(last ?? first)];
      const label = stretch[0] === stretch[1] ? `message ${first}` : `messages ${first} to ${last}`;
      if (at) box.append(" ");
      box.append(h("button", { class: "cite", type: "button", "data-position": first, "aria-label": `Go to ${label}`,
        onclick: (event) => cite(...stretch, event.currentTarget) }, `#${said.replace(/#/g, "")}`));
    }
    done = found.index + found[0].length;
  }
  box.append(shown.slice(done) || (done ? "" : " "));
  return box;
}

export function headline(fold) {
  const folded = fold.counts?.folded ?? 0;
  const score = fold.report?.score;
  const reasons = (fold.reasons ?? []).join(", ") || "requested";
  return h("div", { class: "headline" },
    h("h1", {}, `Compaction ${fold.step}`),
    h("ul", { class: "facts" },
      h("li", { title: "Reason" }, visible(reasons)),
      h("li", {}, h("b", {}, whole(fold.tokens_before)), " → ", h("b", {}, whole(fold.tokens_after)), " tokens"),
      h("li", {}, h("b", {}, whole(folded)), ` message${folded === 1 ? "" : "s"} folded`),
      Number.isFinite(score) && h("li", {}, "fidelity ", h("b", { class: `grade ${grade(score)}` }, score.toFixed(0))),
      Number.isFinite(fold.cost_usd) && h("li", {}, money(fold.cost_usd)),
      Number.isFinite(fold.duration) && h("li", {}, lasted(fold.duration)),
      Number.isFinite(fold.time) && h("li", { class: "dim" }, `${day(fold.time)} ${clock(fold.time)}`),
      fold.fallback && h("li", { class: "chip warn" }, `fallback: ${oneLine(fold.fallback)}`),
      fold.undone && h("li", { class: "chip warn" }, "undone"),
      fold.note && h("li", { class: "chip" }, `“${oneLine(fold.note)}”`),
    ));
}

// Layers differ in pattern as well as in colour.
function inkOf(pen, layer) {
  const tile = document.createElement("canvas");
  tile.width = tile.height = 8;
  const ink = tile.getContext("2d");
  const strong = colour(`--layer-${layer}`);
  ink.fillStyle = layer === "folded" ? colour("--panel") : strong;
  ink.fillRect(0, 0, 8, 8);
  ink.strokeStyle = layer === "folded" ? strong : colour("--panel");
  ink.lineWidth = layer === "folded" ? 2 : 1.2;
  ink.beginPath();
  if (layer === "folded") for (const x of [-8, 0, 8]) { ink.moveTo(x, 8); ink.lineTo(x + 8, 0); }
  if (layer === "tools") { ink.moveTo(0, 4); ink.lineTo(8, 4); }
  if (layer === "clipped") { ink.rect(1, 1, 2, 2); ink.rect(5, 5, 2, 2); }
  ink.stroke();
  return pen.createPattern(tile, "repeat");
}

function stripsOf(fold, shown, hover, pick) {
  const sides = [["Before", fold.before, fold.tokens_before], ["After", fold.after, fold.tokens_after]];
  const lines = [["trigger", fold.trigger], ["budget", fold.budget], ["window", fold.window]].filter(([, at]) =>
    at > 0);
  const sums = sides.map(([, rows, total]) => Math.max(total ?? 0, rows.reduce((sum, row) => sum + row[4], 0)));
  const scale = Math.max(1, ...sums, ...lines.map(([, at]) => at)) * 1.005;
  const canvas = h("canvas",
    { role: "img", "aria-label": `Tokens by message: ${whole(fold.tokens_before)} before, ${whole(fold.tokens_after)} after, of a window of ${whole(fold.window)}` });
  const caret = h("i", { class: "caret", hidden: true });
  const element = h("div", { class: "strips" }, canvas, caret);
  const [top, high, gap, left, right] = [24, 30, 14, 118, 12];
  let places = [];

  function draw() {
    const width = element.clientWidth;
    if (!width) return;
    const pen = canvasOf(canvas, width, top + 2 * high + gap + 8);
    const room = width - left - right;
    const x = (tokens) => left + (tokens / scale) * room;
    const inks = Object.fromEntries(LAYERS.map(({ id }) => [id, inkOf(pen, id)]));
    const [ink, dim, rule, panel, sunk] = ["--ink", "--dim", "--rule", "--panel", "--sunk"].map(colour);
    const family = getComputedStyle(element).fontFamily;
    places = [];
    pen.textBaseline = "middle";
    sides.forEach(([name, rows, total], side) => {
      const y = top + side * (high + gap);
      pen.textAlign = "left";
      pen.fillStyle = dim;
      pen.font = `11px ${family}`;
      pen.fillText(name, 0, y + high / 2 - 8);
      pen.fillStyle = ink;
      pen.font = `600 14px ${family}`;
      pen.fillText(whole(total), 0, y + high / 2 + 7);
      pen.fillStyle = sunk;
      pen.fillRect(left, y, room, high);
      const said = rows.reduce((sum, row) => sum + row[4], 0);
      let from = Math.max(0, (total ?? said) - said);
      if (from > 0) {
        pen.fillStyle = rule;
        pen.fillRect(left, y, x(from) - left, high);
        places.push({ side, from: left, to: x(from), row: null, tokens: from });
      }
      for (const row of rows) {
        const [start, end] = [x(from), x(from + row[4])];
        pen.globalAlpha = shown(row[3]) ? 1 : 0.12;
        pen.fillStyle = inks[row[3]] ?? inks.recent;
        pen.fillRect(start, y, Math.max(0.4, end - start), high);
        if (end - start > 3) {
          pen.fillStyle = panel;
          pen.globalAlpha = 0.85;
          pen.fillRect(end - 0.5, y, 1, high);
        }
        places.push({ side, from: start, to: end, row });
        from += row[4];
      }
      pen.globalAlpha = 1;
      if (side === 1 && sums[0] > sums[1]) {
        const [start, end] = [x(sums[1]), x(sums[0])];
        pen.font = `11.5px ${family}`;
        const label = `− ${whole(sums[0] - sums[1])} tokens, ${Math.round(100 * (1 - sums[1] / sums[0]))} % freed`;
        if (end - start > pen.measureText(label).width + 24) {
          pen.fillStyle = dim;
          pen.textAlign = "center";
          pen.fillText(label, (start + end) / 2, y + high / 2 + 1);
        }
      }
    });
    pen.font = `10.5px ${family}`;
    let edge = width;
    for (const [name, at] of [...lines].sort((one, other) => other[1] - one[1])) {
      const place = Math.round(x(at)) - 0.5;
      const label = `${name} ${short(at)}`;
      const wide = pen.measureText(label).width;
      const text = Math.min(place + wide / 2, edge - 4, width - 2) - wide;
      edge = text - 6;
      pen.strokeStyle = colour(`--line-${name}`);
      pen.setLineDash(name === "window" ? [] : name === "budget" ? [6, 3] : [2, 2]);
      pen.lineWidth = 1.5;
      pen.beginPath();
      pen.moveTo(text + wide / 2, 13);
      pen.lineTo(place, top - 3);
      pen.lineTo(place, top + 2 * high + gap + 4);
      pen.stroke();
      pen.setLineDash([]);
      pen.textAlign = "left";
      pen.fillStyle = colour(`--line-${name}`);
      pen.fillText(label, text, 6);
    }
  }

  function under(event) {
    const box = canvas.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    const side = y < top || y > top + 2 * high + gap ? -1 : y <= top + high ? 0 : y >= top + high + gap ? 1 : -1;
    return places.find((place) => place.side === side && x >= place.from && x < Math.max(place.to, place.from + 0.5));
  }

  canvas.addEventListener("pointermove", (event) => {
    const place = under(event);
    canvas.classList.toggle("live", Boolean(place?.row));
    hover(place, event);
  });
  canvas.addEventListener("pointerleave", () => card.away());
  canvas.addEventListener("click", (event) => { const place = under(event); if (place?.row) pick(place.side, place.row);
    });
  // Points at the segment of the row that is selected in a list.
  function point(row) {
    const place = row && places.find((one) => one.row === row);
    caret.hidden = !place;
    if (place) styled(caret, { left: `${place.from - 1}px`, width: `${Math.max(3, place.to - place.from + 2)}px`,
      top: `${top - 3 + place.side * (high + gap)}px`, height: `${high + 6}px` });
  }

  new ResizeObserver(() => { point(null); draw(); }).observe(element);
  return { element, draw, point };
}

function fidelityOf(report) {
  if (!report) return h("p", { class: "quiet" }, "No report: this compaction has no summary to measure.");
  const all = report.kept + report.repaired + report.lost;
  const bar = (counts, total) => h("span", { class: "shares", "aria-hidden": "true" },
    ["kept", "repaired", "lost"].map((name) => counts[name] > 0 && h("i",
      { class: name, style: { flexGrow: counts[name] / total } })));
  const list = (title, names, says, kind) => names?.length > 0 && h("section", { class: "named" },
    h("h3", {}, title, h("span", { class: "count" }, names.length)), h("p", { class: "quiet" }, says),
    h("ul", { class: kind }, names.map((name) => h("li", { dir: "auto" }, visible(name)))));
  return h("div", { class: "fidelity" },
    h("div", { class: "score" },
      h("b", { class: `grade ${grade(report.score)}` }, Number(report.score).toFixed(1)),
      h("span", {}, "of 100: the share of the facts that could fit, by importance, that the summary keeps")),
    bar(report, all || 1),
    h("ul", { class: "key" }, ["kept", "repaired", "lost"].map((name) =>
      h("li", {}, h("i", { class: name }), h("b", {}, whole(report[name])), ` ${name}`))),
    report.unkept_kinds?.length > 0 && h("p", { class: "notice warn" },
      `Nothing kept of: ${visible(report.unkept_kinds.join(", "))}`),
    list("Lost", report.missing, "The most important facts that are not in the summary. They are still in the archive.",
      "lost"),
    list("Invented", report.invented, "Named in the summary, but in none of the folded messages.", "invented"),
    h("table", { class: "kinds" },
      h("thead", {}, h("tr", {}, ["Kind", "", "Kept", "Repaired", "Lost"].map((name) =>
        h("th", { scope: "col" }, name)))),
      h("tbody", {}, Object.entries(report.kinds ?? {}).map(([kind, counts]) => h("tr", {},
        h("th", { scope: "row" }, visible(kind)), h("td", {}, bar(counts,
          counts.kept + counts.repaired + counts.lost || 1)),
        ["kept", "repaired", "lost"].map((name) => h("td", { class: counts[name] ? name : "zero" },
          whole(counts[name]))))))));
}

function lawsOf(laws) {
  if (!laws?.length) return h("p", { class: "quiet" },
    "This record does not list the laws that were checked: an earlier version wrote it.");
  return h("div", {},
    h("p", { class: "quiet" },
      `${laws.length} laws were checked before this list was returned. A broken law stops the compaction.`),
    h("ul", { class: "laws" }, laws.map((law) => h("li", {},
      h("span", { class: "tick", "aria-label": "held" }, "✓"), h("span", {}, visible(law.says)),
        h("code", {}, visible((law.rows ?? []).join(" ") || law.id))))));
}

// Tabs: one of several panels is visible.
export function tabsOf(label, panels, start = 0) {
  const named = `tabs-${Math.random().toString(36).slice(2, 8)}`;
  const bodies = panels.map(([, body], at) => h("div", { role: "tabpanel", id: `${named}-p${at}`,
    "aria-labelledby": `${named}-t${at}`, tabindex: 0 }, body));
  const show = (at, focus) => tabs.forEach((tab, other) => {
    tab.setAttribute("aria-selected", other === at);
    tab.tabIndex = other === at ? 0 : -1;
    bodies[other].hidden = other !== at;
    if (focus && other === at) tab.focus();
  });
  const tabs = panels.map(([name], at) => h("button", {
    type: "button", role: "tab", id: `${named}-t${at}`, "aria-controls": `${named}-p${at}`, onclick: () => show(at),
    onkeydown: (event) => {
      const move = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (move) { show((at + move + panels.length) % panels.length, true); event.preventDefault();
        event.stopPropagation(); }
    },
  }, name));
  show(start);
  return { element: h("section", { class: "tabs", "aria-label": label },
    h("div", { role: "tablist", "aria-label": label }, tabs), bodies), show };
}

// The arguments of a tool call, by name where they are a JSON object.
function argumentsOf(text) {
  let value;
  try { value = JSON.parse(text); } catch { value = null; }
  if (value === null || typeof value !== "object" || Array.isArray(value)) return longText(text,
    { class: "text mono" });
  return h("dl", {}, Object.entries(value).map(([name, one]) => [h("dt", {}, oneLine(name)),
    h("dd", {}, longText(typeof one === "string" ? one : JSON.stringify(one, null, 1), { class: "text mono" }))]));
}

const keyOf = (row) => (row[0] === null || row[0] === undefined ? { made: row[6] } : { line: row[0] });
const nameOf = (row) => (row[1] >= 0 && row[1] !== null ? `#${row[1]}` : "–");

// `message({line} or {made}, whole)` loads a message; `cite(first, last, near)` opens one that is not in this list, and
// may call `near` to open the nearest one that is.
export function foldView(fold, { message, cite, opened = () => {}, banner = () => null }) {
  const hidden = new Set();
  const shown = (layer) => !hidden.has(layer);
  const most = [...fold.before, ...fold.after].reduce((top, row) => Math.max(top, row[4]), 1);
  const drawer = new Drawer("Message");
  const known = new Map();

  function load(row, everything = false) {
    const key = JSON.stringify([keyOf(row), everything]);
    if (!known.has(key)) known.set(key, Promise.resolve(message(keyOf(row), everything)).catch((error) =>
      { known.delete(key); throw error; }));
    return known.get(key);
  }

  const reading = async (row) => {
    let text;
    try {
      const found = await load(row);
      const calls = (found.calls ?? []).map((call) => `→ ${call.name}(${call.arguments})`).join("\n");
      text = [found.text, calls].filter(Boolean).join("\n\n");
    } catch (error) {
      text = error.message;
    }
    return h("div", {},
      h("header", {}, badge(row[3]), h("b", {}, nameOf(row)), h("span", {}, visible(row[2])),
        h("span", { class: "dim" }, `${whole(row[4])} tokens`)),
      h("p", { dir: "auto" }, visible(text.slice(0, 1400)), text.length > 1400
        && h("span", { class: "dim" }, ` … ${whole(text.length - 1400)} more characters`)));
  };
  const hover = (item, event) => { strips.point(item); card.over(item, event, () => reading(item)); };

  const draw = (row) => h("div", { class: "message", "data-layer": row[3] },
    badge(row[3]), h("span", { class: "at" }, nameOf(row)), h("span", { class: "role" }, oneLine(row[2])),
    h("span", { class: "bar" },
      h("i", { class: row[3], style: { width: `${Math.max(1.5, (100 * row[4]) / most)}%` } })),
    h("span", { class: "tokens" }, whole(row[4])), h("span", { class: "preview", dir: "auto" },
      oneLine(row[5]) || "(no text)"));

  const lists = [["Before", fold.before], ["After", fold.after]].map(([name, rows], side) => {
    const list = new Rows({ label: `Messages ${name.toLowerCase()}`, draw, hover, open: (row) => read(side, row),
      choose: (row) => strips.point(row) });
    const count = h("span", { class: "count" });
    return { name, rows, list, count };
  });

  function fill() {
    for (const { rows, list, count } of lists) {
      const some = hidden.size ? rows.filter((row) => shown(row[3])) : rows;
      list.set(some, { keep: true });
      count.textContent = some.length === rows.length ? whole(rows.length)
        : `${whole(some.length)} of ${whole(rows.length)}`;
    }
    strips.draw();
    for (const button of legend.querySelectorAll("button[data-layer]")) button.setAttribute("aria-pressed",
      shown(button.dataset.layer));
    legend.querySelector(".all").hidden = hidden.size === 0;
  }

  function only(layer, add) {
    const alone = LAYERS.every(({ id }) => shown(id) === (id === layer));
    if (add) { if (!hidden.delete(layer)) hidden.add(layer); }
    else { hidden.clear(); if (!alone) LAYERS.forEach(({ id }) => { if (id !== layer) hidden.add(id); }); }
    if (hidden.size === LAYERS.length) hidden.clear();
    fill();
  }

  const legend = h("div", { class: "legend", role: "group",
    "aria-label": "Show only one layer; with Shift add or take away one" },
    LAYERS.filter(({ id }) => fold.counts?.[id] || [...fold.before, ...fold.after].some((row) =>
      row[3] === id)).map(({ id, name, says }) => h("button", {
      type: "button", "data-layer": id, "aria-pressed": "true",
        title: `${says} Click: only these. Shift-click: add or take away.`,
        onclick: (event) => only(id, event.shiftKey || event.metaKey || event.ctrlKey),
    }, badge(id), name, h("span", { class: "dim" },
      `${whole(fold.counts?.[id] ?? 0)} · ${short(fold.tokens?.[id] ?? 0)} tok`))),
    h("button", { type: "button", class: "all link", onclick: () => { hidden.clear(); fill(); } }, "Show all"));

  const strips = stripsOf(fold, shown, (place, event) => {
    if (!place) { strips.point(null); return card.away(); }
    if (place.row) return hover(place.row, event);
    return card.over(`fixed-${place.side}`, event, () => h("div", {}, h("header", {}, h("b", {}, "Tools and request")),
      h("p", {}, `${whole(place.tokens)} tokens that are no message: tool definitions, and what the format of a request costs.`)));
  }, (side, row) => read(side, row));

  function read(side, row, from = null) {
    const { list, rows } = lists[side];
    let index = list.items.indexOf(row);
    if (index < 0) { hidden.clear(); fill(); index = list.items.indexOf(row); }
    if (index < 0) index = rows.indexOf(row);
    if (index !== list.at) list.show(index);
    const move = (by) => { const next = list.items[index + by]; if (next) { list.select(index + by);
      read(side, next, from); } };
    strips.point(row);
    const body = h("div", { class: "read" }, h("p", { class: "quiet" }, "Reading …"));
    const element = drawer.open(
      h("header", {}, badge(row[3]), h("h2", {}, `${nameOf(row)} ${visible(row[2])}`),
        h("span", { class: "dim" },
          `${whole(row[4])} tokens · ${LAYER[row[3]]?.name ?? row[3]} · ${side ? "after" : "before"}`),
          h("span", { class: "gap" }),
        h("button", { type: "button", class: "plain", disabled: index <= 0, title: "Message before (k)",
          "aria-label": "Message before", onclick: () => move(-1) }, "↑"),
        h("button", { type: "button", class: "plain", disabled: index >= list.items.length - 1,
          title: "Next message (j)", "aria-label": "Next message", onclick: () => move(1) }, "↓"),
        h("button", { type: "button", class: "plain close", title: "Close (Esc)", "aria-label": "Close",
          onclick: () => drawer.close() }, "✕")),
      ...[banner()].filter(Boolean), body);
    element.onkeydown = (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const by = { j: 1, k: -1 }[event.key];
      if (by) { move(by); event.preventDefault(); }
      event.stopPropagation();
    };
    drawer.onclose = () => { opened(null); (from?.isConnected ? from : list.element).focus({ preventScroll: true }); };
    opened(row[0]);
    fillReader(body, row, false);
  }

  async function fillReader(body, row, everything) {
    let found;
    try {
      found = await load(row, everything);
    } catch (error) {
      body.replaceChildren(h("p", { class: "notice bad" }, visible(error.message)));
      return;
    }
    const copy = h("button", { type: "button", class: "plain", onclick: () => copied(copy, found.text || found.raw) },
      "Copy");
    const calls = (found.calls ?? []).map((call) => h("section", { class: "call" },
      h("h3", {}, "Call ", h("code", {}, oneLine(call.name)), h("span", { class: "dim" }, oneLine(call.id ?? ""))),
      argumentsOf(call.arguments)));
    body.replaceChildren(...[
      h("p", { class: "bar-of" }, (found.text || !calls.length) && h("span", { class: "dim" },
        `${whole(found.characters)} characters`), found.answers?.length > 0
        && h("span", { class: "dim" }, `answers ${oneLine(found.answers.join(", "))}`), h("span", { class: "gap" }),
        copy),
      found.text ? row[3] === "summary" ? citedText(found.text, jump) : longText(found.text) : !calls.length
        && h("p", { class: "quiet" }, "This message has no text."),
      ...calls,
      found.cut && h("p", { class: "notice" }, "Only the beginning is shown. ",
        h("button", { type: "button", class: "link", onclick: () => fillReader(body, row, true) },
        `Show all ${whole(found.characters)} characters`)),
      h("details", {}, h("summary", {}, "Raw JSON"), longText(found.raw, { class: "text mono" })),
    ].filter(Boolean));
  }

  function reveal(line, from = null) {
    const row = fold.before.find((one) => one[0] === line);
    if (!row) return false;
    if (!shown(row[3])) { hidden.clear(); fill(); }
    const { list } = lists[0];
    list.show(list.items.indexOf(row));
    read(0, row, from);
    return true;
  }

  function jump(first, last, from) {
    const said = fold.before.filter((one) => one[1] >= first && one[1] <= last && one[3] !== "summary");
    if (said[0]?.[1] === first) reveal(said[0][0], from);
    else cite(first, last, said[0] ? () => reveal(said[0][0], from) : null);
  }

  const summaries = fold.summaries?.length
    ? fold.summaries.map((one, at) => h("article", { class: "summary" },
      fold.summaries.length > 1 && h("h3", {}, `Summary ${at + 1}`), citedText(one.text, jump)))
    : h("p", { class: "quiet" },
      fold.fallback ? `No summary: the summarizer failed, and the compaction continued with “${oneLine(fold.fallback)}”.`
      : "This compaction has no summary.");
  const lost = (fold.report?.lost ?? 0) + (fold.report?.invented?.length ?? 0);
  const tabs = tabsOf("Result of the compaction", [
    [["Summary"], summaries],
    [["Fidelity", lost > 0 && h("span", { class: "count" }, `${whole(lost)} lost`)], fidelityOf(fold.report)],
    [["Laws", fold.laws?.length > 0 && h("span", { class: "count" }, whole(fold.laws.length))], lawsOf(fold.laws)],
  ]);
  const element = h("div", { class: "fold-view" },
    fold.complaints?.length > 0
      && h("ul", { class: "notice warn" }, fold.complaints.map((one) => h("li", {}, visible(one)))),
    h("section", { class: "picture", "aria-label": "Tokens before and after" }, strips.element, legend),
    h("div", { class: "columns" },
      lists.map(({ name, list, count }) => h("section", { class: "panel list" }, h("h2", {}, name, count),
        list.element)),
      h("section", { class: "panel made" }, tabs.element)));
  fill();
  return { element, reveal, jump, redraw: strips.draw, lists, close: () => drawer.close() };
}
