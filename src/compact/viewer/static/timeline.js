// Tokens over time against the window, with every compaction as a drop.
//
// Owns: the plot and its navigation. Must never: fetch; it gets the response of /api/timeline.

import { h, styled, visible, whole, short, money, lasted, clock, day, colour, canvasOf, card } from "./dom.js";
import { grade } from "./fold.js";

const [TOP, BOTTOM, LEFT, RIGHT, HIGH] = [30, 24, 52, 104, 232];
const STEPS = [0.001, 0.01, 0.1, 0.25, 0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21_600, 43_200,
  86_400, 604_800];

function nice(most, ticks) {
  const rough = most / ticks;
  const power = 10 ** Math.floor(Math.log10(rough || 1));
  return [1, 2, 2.5, 5, 10].map((by) => by * power).find((step) => step >= rough) ?? power;
}

export class Timeline {
  constructor({ open, ranged }) {
    this.ranged = ranged;
    this.open = open;
    this.by = localStorage.getItem("timeline-by") ?? "time";
    this.settled = localStorage.getItem("timeline-by") !== null;
    this.follow = true;
    this.canvas = h("canvas", { "aria-hidden": "true" });
    this.cross = h("div", { class: "cross", hidden: true });
    this.pick = h("div", { class: "pick", hidden: true });
    this.marks = h("div", { class: "marks", role: "group",
      "aria-label": "Compactions. Left and right move between them, Enter opens one." });
    this.plot = h("div", { class: "plot" }, this.canvas, this.pick, this.cross, this.marks);
    this.note = h("p", { class: "quiet" }, "");
    const ways = ["time", "calls"].map((by) => h("button", { type: "button", "data-by": by,
      "aria-pressed": by === this.by, title: by === "time" ? "By time" : "By call, all equally wide",
      onclick: () => this.turn(by) }, by === "time" ? "Time" : "Calls"));
    this.ways = ways;
    this.reset = h("button", { type: "button", class: "link", hidden: true, onclick: () => this.zoom(null) },
      "Show all");
    this.tail = h("button", { type: "button", class: "toggle", "aria-pressed": "true",
      title: "Follow the newest", onclick: () => { this.follow = !this.follow;
      this.tail.setAttribute("aria-pressed", this.follow); if (this.follow) this.zoom(null); } }, "Follow live");
    this.element = h("section", { class: "panel timeline", "aria-label": "Timeline" },
      h("h2", {}, "Tokens in the window", h("span", { class: "gap" }), this.reset, this.tail,
        h("span", { class: "choice", role: "group", "aria-label": "Horizontal axis" }, ways)), this.plot);
    this.data = { points: [], folds: [], marks: [] };
    this.plot.addEventListener("pointermove", (event) => this.moved(event));
    this.plot.addEventListener("pointerleave", () => { this.cross.hidden = true; if (!this.from) card.away(); });
    this.plot.addEventListener("pointerdown", (event) => this.pressed(event));
    this.plot.addEventListener("dblclick", () => this.zoom(null));
    this.marks.addEventListener("keydown", (event) => this.keyed(event));
    this.observer = new ResizeObserver(() => this.draw());
    this.observer.observe(this.plot);
  }

  set(data) {
    const kept = this.data.folds.length;
    this.data = data;
    if (!this.settled && data.points.length > 8) {
      this.settled = true;
      if (lopsided(data)) this.show("calls");
    }
    if (this.range && this.follow && data.folds.length !== kept) this.range = null;
    this.draw();
  }

  turn(by) {
    localStorage.setItem("timeline-by", by);
    this.settled = true;
    this.show(by);
    this.zoom(null);
  }

  show(by) {
    this.by = by;
    this.ways.forEach((way) => way.setAttribute("aria-pressed", way.dataset.by === by));
  }

  zoom(range) {
    this.range = range;
    this.reset.hidden = !range;
    if (range) { this.follow = false; this.tail.setAttribute("aria-pressed", "false"); }
    this.draw();
    const [from, to] = this.extent();
    this.ranged?.(range ? [this.timeAt(from), this.timeAt(to)] : null);
  }

  // A place on the axis: a time, or a number of calls.
  unit(time) {
    if (this.by === "time") return time;
    const { points } = this.data;
    let [low, high] = [0, points.length - 1];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (points[middle][0] < time) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  timeAt(unit) {
    const { points } = this.data;
    return this.by === "time" ? unit : points[Math.max(0, Math.min(points.length - 1, Math.round(unit)))]?.[0];
  }

  extent() {
    if (this.range) return this.range;
    const { points, folds, marks } = this.data;
    if (this.by === "calls") return [0, Math.max(1, points.length - 1)];
    const times = [points[0]?.[0], points.at(-1)?.[0], folds[0]?.time, folds.at(-1)?.time, marks[0]?.time,
      marks.at(-1)?.time].filter(Number.isFinite);
    const [from, to] = [Math.min(...times), Math.max(...times)];
    return times.length ? [from, Math.max(to, from + 0.01)] : [0, 1];
  }

  x(unit) {
    const [from, to] = this.extent();
    return LEFT + ((unit - from) / (to - from)) * this.room;
  }

  y(tokens) {
    return TOP + (1 - tokens / this.most) * (HIGH - TOP - BOTTOM);
  }

  draw() {
    const width = this.plot.clientWidth;
    if (!width) return;
    const { points } = this.data;
    const pen = canvasOf(this.canvas, width, HIGH);
    const family = getComputedStyle(this.plot).fontFamily;
    this.room = width - LEFT - RIGHT;
    const last = points.at(-1) ?? [];
    const lines = [["window", last[2] ?? this.data.window], ["budget", last[4]],
      ["trigger", last[3]]].filter(([, at]) => at > 0);
    let peak = 1;
    for (const point of points) peak = Math.max(peak, point[1]);
    this.most = Math.max(peak, ...lines.map(([, at]) => at)) * 1.06;
    const [ink, dim, rule, accent, wash] = ["--ink", "--dim", "--rule", "--accent", "--wash"].map(colour);
    pen.font = `11px ${family}`;
    pen.textBaseline = "middle";
    pen.lineWidth = 1;
    this.axes(pen, dim, rule);

    if (points.length) {
      const unit = (point, index) => (this.by === "time" ? point[0] : index);
      pen.save();
      pen.beginPath();
      pen.rect(LEFT - 1, TOP - 12, this.room + 2, HIGH - TOP - BOTTOM + 13);
      pen.clip();
      const curve = new Path2D();
      const drops = new Map(this.data.folds.map((fold) => [fold.time, fold]));
      points.forEach((point, index) => {
        const at = this.x(unit(point, index));
        // During a compaction the list does not change; the drop is at its end.
        if (index && drops.has(point[0])) curve.lineTo(at, this.y(drops.get(point[0]).before));
        curve.lineTo(at, this.y(point[1]));
      });
      const area = new Path2D(curve);
      area.lineTo(this.x(unit(last, points.length - 1)), this.y(0));
      area.lineTo(this.x(unit(points[0], 0)), this.y(0));
      pen.fillStyle = wash;
      pen.fill(area);
      pen.strokeStyle = accent;
      pen.lineWidth = 1.5;
      pen.lineJoin = "round";
      pen.stroke(curve);
      for (const fold of this.data.folds) {
        const at = this.x(this.unit(fold.time));
        pen.strokeStyle = fold.undone ? dim : ink;
        pen.globalAlpha = 0.55;
        pen.lineWidth = 1;
        pen.setLineDash([2, 2]);
        pen.beginPath();
        pen.moveTo(at, TOP - 10);
        pen.lineTo(at, this.y(fold.before));
        pen.stroke();
        pen.setLineDash([]);
        pen.globalAlpha = 1;
        pen.lineWidth = 2;
        pen.strokeStyle = fold.undone ? dim : accent;
        pen.beginPath();
        pen.moveTo(at, this.y(fold.before));
        pen.lineTo(at, this.y(fold.after));
        pen.stroke();
        pen.fillStyle = fold.undone ? dim : accent;
        pen.beginPath();
        pen.moveTo(at - 4, this.y(fold.after) - 6);
        pen.lineTo(at + 4, this.y(fold.after) - 6);
        pen.lineTo(at, this.y(fold.after));
        pen.fill();
      }
      pen.restore();
    }
    this.limits(pen, lines);
    if (!points.length) {
      pen.fillStyle = dim;
      pen.textAlign = "center";
      pen.font = `13px ${family}`;
      pen.fillText("No token estimate yet. The curve begins with the session's next preflight.", LEFT + this.room / 2,
        HIGH / 2);
    }
    this.place();
  }

  axes(pen, dim, rule) {
    if (!this.data.points.length) return;
    const step = nice(this.most, 4);
    pen.textAlign = "right";
    for (let tokens = 0; tokens <= this.most; tokens += step) {
      const at = Math.round(this.y(tokens)) + 0.5;
      pen.strokeStyle = rule;
      pen.beginPath();
      pen.moveTo(LEFT, at);
      pen.lineTo(LEFT + this.room, at);
      pen.stroke();
      pen.fillStyle = dim;
      pen.fillText(short(tokens), LEFT - 8, at);
    }
    const [from, to] = this.extent();
    pen.textAlign = "center";
    pen.fillStyle = dim;
    const put = (unit, label) => {
      const at = Math.round(this.x(unit)) + 0.5;
      pen.beginPath();
      pen.moveTo(at, HIGH - BOTTOM);
      pen.lineTo(at, HIGH - BOTTOM + 4);
      pen.stroke();
      pen.fillText(label, at, HIGH - BOTTOM + 13);
    };
    if (this.by === "calls") {
      const by = Math.max(1, nice(to - from, this.room / 90));
      for (let call = Math.ceil(from / by) * by; call <= to; call += by) put(call,
        call === 0 ? "call 1" : whole(call + 1));
      return;
    }
    const by = STEPS.find((one) => one >= (to - from) / (this.room / 96)) ?? 604_800;
    const zone = new Date(from * 1000).getTimezoneOffset() * 60;
    for (let time = Math.ceil((from - zone) / by) * by + zone; time <= to; time += by) {
      put(time, by >= 86_400 ? day(time) : by >= 60 ? clock(time, "m") : by >= 1 ? clock(time)
        : `${clock(time, "ms").slice(6, by >= 0.1 ? 11 : 12)} s`);
    }
  }

  limits(pen, lines) {
    let above = -99;
    const placed = [...lines].sort((one, other) => other[1] - one[1]);
    for (const [name, tokens] of placed) {
      const at = Math.round(this.y(tokens)) + 0.5;
      const label = Math.max(at, above + 14);
      above = label;
      const tint = colour(`--line-${name}`);
      pen.strokeStyle = tint;
      pen.lineWidth = 1.2;
      pen.setLineDash(name === "window" ? [] : name === "budget" ? [6, 3] : [2, 2]);
      pen.beginPath();
      pen.moveTo(LEFT, at);
      pen.lineTo(LEFT + this.room, at);
      pen.lineTo(LEFT + this.room + 10, label);
      pen.stroke();
      pen.setLineDash([]);
      pen.textAlign = "left";
      pen.fillStyle = tint;
      pen.fillText(`${name} ${short(tokens)}`, LEFT + this.room + 14, label);
    }
  }

  // Compactions and errors are elements, so that they can be focused and read aloud.
  place() {
    const chosen = this.marks.querySelector(":focus")?.dataset.step;
    const inside = (unit) => { const at = this.x(unit); return at >= LEFT - 1 && at <= LEFT + this.room + 1; };
    const folds = this.data.folds.filter((fold) => inside(this.unit(fold.time)));
    let edge = -99;
    const buttons = folds.map((fold, index) => {
      const at = this.x(this.unit(fold.time));
      const near = at - edge < 27;
      if (!near) edge = at;
      const state = fold.undone ? " undone" : fold.fallback ? " fallen" : "";
      return h("button", {
        type: "button", class: `mark${near ? " small" : ""}${state}`, "data-step": fold.step,
          tabindex: (chosen ? String(fold.step) === chosen : index === 0) ? 0 : -1,
        "aria-label": `Compaction ${fold.step}: ${fold.reason ?? ""}, ${whole(fold.before)} to ${whole(fold.after)} tokens${fold.fallback ? `, fell back: ${fold.fallback}` : ""}`,
          style: { left: `${at}px` },
        onclick: () => this.open(fold.step), onpointermove: (event) => { event.stopPropagation();
          this.cross.hidden = true; card.over(`fold-${fold.step}`, event, () => details(fold), 0); },
          onpointerleave: () => card.away(),
        onfocus: (event) => { if (!event.target.matches(":focus-visible")) return;
          const box = event.target.getBoundingClientRect(); card.over(`fold-${fold.step}`,
          { clientX: box.right, clientY: box.bottom }, () => details(fold), 0); }, onblur: () => card.away(),
      }, near ? "" : String(fold.step));
    });
    let wedge = -99;
    const flags = this.data.marks.filter((mark) => inside(this.unit(mark.time))).filter((mark) => {
      const at = this.x(this.unit(mark.time));
      const show = mark.kind === "error" || at - wedge >= 5;
      if (show) wedge = at;
      return show;
    }).slice(-400).map((mark) => h("span", { class: `flag ${mark.kind}`, "data-kind": mark.kind,
      style: { left: `${this.x(this.unit(mark.time))}px` }, onpointermove: (event) => { event.stopPropagation();
      this.cross.hidden = true; card.over(mark, event, () => flagged(mark), 0); },
      onpointerleave: () => card.away() }, mark.kind === "error" ? "✕" : "!"));
    this.marks.replaceChildren(...buttons, ...flags);
    if (chosen) this.marks.querySelector(`[data-step="${CSS.escape(chosen)}"]`)?.focus();
  }

  keyed(event) {
    const buttons = [...this.marks.querySelectorAll(".mark")];
    const at = buttons.indexOf(document.activeElement);
    const next = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: buttons.length - 1 }[event.key];
    if (next === undefined || !buttons[next]) return;
    buttons.forEach((button, index) => { button.tabIndex = index === next ? 0 : -1; });
    buttons[next].focus();
    event.preventDefault();
  }

  unitAt(event) {
    const [from, to] = this.extent();
    const at = event.clientX - this.plot.getBoundingClientRect().left;
    return Math.max(from, Math.min(to, from + ((at - LEFT) / this.room) * (to - from)));
  }

  moved(event) {
    const { points } = this.data;
    if (!points.length) return;
    const unit = this.unitAt(event);
    if (this.from !== undefined && this.from !== null) {
      const [low, high] = [Math.min(this.from, unit), Math.max(this.from, unit)];
      this.pick.hidden = this.x(high) - this.x(low) < 4;
      styled(this.pick, { left: `${this.x(low)}px`, width: `${this.x(high) - this.x(low)}px`, top: `${TOP}px`,
        height: `${HIGH - TOP - BOTTOM}px` });
      return;
    }
    let index = this.by === "calls" ? Math.round(unit) : 0;
    if (this.by === "time") {
      let [low, high] = [0, points.length - 1];
      while (low < high) { const middle = (low + high) >> 1; if (points[middle][0] < unit) low = middle + 1;
        else high = middle; }
      index = low > 0 && unit - points[low - 1][0] < points[low][0] - unit ? low - 1 : low;
    }
    const point = points[index];
    if (!point) return;
    this.cross.hidden = false;
    styled(this.cross, { left: `${this.x(this.by === "time" ? point[0] : index)}px`, top: `${TOP}px`,
      height: `${HIGH - TOP - BOTTOM}px`, "--y": `${this.y(point[1]) - TOP}px` });
    card.over(`point-${index}`, event, () => h("div", {},
      h("header", {}, h("b", {}, `${whole(point[1])} tokens`), point[2] > 0
        && h("span", { class: "dim" }, `${Math.round((100 * point[1]) / point[2])} % of the window`)),
      h("p", { class: "dim" }, `${day(point[0])} ${clock(point[0], "ms")}`)), 0);
  }

  pressed(event) {
    if (event.button || event.target.closest("button")) return;
    this.from = this.unitAt(event);
    this.cross.hidden = true;
    const up = (end) => {
      removeEventListener("pointerup", up);
      const to = this.unitAt(end);
      const wide = Math.abs(this.x(to) - this.x(this.from));
      const range = [Math.min(this.from, to), Math.max(this.from, to)];
      this.from = null;
      this.pick.hidden = true;
      if (wide > 6) this.zoom(range);
    };
    addEventListener("pointerup", up);
  }
}

// Whether a time axis would mostly show waiting: a night between two calls, or compactions that took most of the time.
function lopsided({ points, folds }) {
  const long = points.at(-1)[0] - points[0][0];
  const gap = points.reduce((most, point, index) => Math.max(most, index ? point[0] - points[index - 1][0] : 0), 0);
  return gap > long / 2 || folds.reduce((sum, fold) => sum + (fold.duration ?? 0), 0) > long / 3;
}

function details(fold) {
  const row = (name, value, kind) => value !== null && value !== undefined
    && h("tr", {}, h("th", { scope: "row" }, name), h("td", { class: kind }, value));
  return h("div", {}, h("header", {}, h("b", {}, `Compaction ${fold.step}`),
    fold.undone && h("span", { class: "chip warn" }, "undone"), fold.fallback
    && h("span", { class: "chip warn" }, visible(fold.fallback))),
    h("table", {}, h("tbody", {},
      row("why", visible([fold.reason, fold.note && `“${fold.note}”`].filter(Boolean).join(" "))),
      row("tokens", `${whole(fold.before)} → ${whole(fold.after)}`),
      Number.isFinite(fold.messages_before)
        && row("messages", `${whole(fold.messages_before)} → ${whole(fold.messages_after)}`),
      Number.isFinite(fold.score) && row("fidelity", fold.score.toFixed(0), `grade ${grade(fold.score)}`),
      Number.isFinite(fold.cost_usd) && row("cost", money(fold.cost_usd)),
      Number.isFinite(fold.duration) && row("took", lasted(fold.duration)),
      row("at", clock(fold.time)))));
}

const flagged = (mark) => h("div", {}, h("header", {}, h("b", { class: mark.kind }, visible(mark.title)),
  h("span", { class: "dim" }, clock(mark.time))), h("p", {}, visible(mark.detail)));
