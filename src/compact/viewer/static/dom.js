// Elements, numbers and long lists. Shared by the page and by an exported file.
//
// Owns: `h`, how text and figures are written, `Rows` (a list of any length), `Card` (what a hover shows), `Drawer`.
// Must never: turn text into markup. Everything that is shown comes from a conversation, which is untrusted input.

export function h(tag, props = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === null || (value === false && !name.startsWith("aria-"))) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "class") element.className = value;
    else if (name === "style") styled(element, value);
    else element.setAttribute(name, value === true && !name.startsWith("aria-") ? "" : String(value));
  }
  element.append(...children.flat(2).filter((child) => child !== undefined && child !== null && child !== false));
  return element;
}

export function styled(element, values) {
  for (const [name, value] of Object.entries(values)) {
    if (name.startsWith("--")) element.style.setProperty(name, value);
    else element.style[name] = value;
  }
  return element;
}

// Invisible characters are written out, so that text cannot hide letters or change its direction unnoticed.
const UNSEEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u115f\u1160\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\ufff9-\ufffb]|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]|\udb40[\udc00-\udc7f]/g;
const PICTURE = (code) => (code < 32 ? String.fromCharCode(0x2400 + code) : code === 127 ? "␡"
  : `⟨U+${code.toString(16).toUpperCase().padStart(4, "0")}⟩`);

export function visible(text) {
  return String(text ?? "").replace(/\r\n/g, "\n").replace(UNSEEN, (found) => PICTURE(found.codePointAt(0)));
}

export function oneLine(text) {
  return visible(String(text ?? "").replace(/\s+/g, " "));
}

const GROUPED = new Intl.NumberFormat("en-US");
export const whole = (number) => (Number.isFinite(number) ? GROUPED.format(Math.round(number)) : "–");

export function short(number) {
  if (!Number.isFinite(number)) return "–";
  const size = Math.abs(number);
  if (size < 1000) return String(Math.round(number));
  const [unit, letter] = size < 999_500 ? [1e3, "k"] : [1e6, "M"];
  const value = number / unit;
  return `${value >= 99.95 ? Math.round(value) : value.toFixed(1).replace(/\.0$/, "")}${letter}`;
}

export function money(usd) {
  if (!Number.isFinite(usd)) return "–";
  if (usd === 0) return "$0";
  return usd < 0.1 ? `$${usd.toFixed(4)}` : `$${usd.toFixed(2)}`;
}

export function lasted(seconds) {
  if (!Number.isFinite(seconds)) return "–";
  if (seconds < 0.001) return `${Math.round(seconds * 1e6)} µs`;
  if (seconds < 0.1) return `${(seconds * 1e3).toFixed(1)} ms`;
  if (seconds < 1) return `${Math.round(seconds * 1e3)} ms`;
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
  return `${Math.floor(seconds / 3600)} h ${Math.round((seconds % 3600) / 60)} min`;
}

const two = (number) => String(number).padStart(2, "0");
export function clock(seconds, detail = "s") {
  if (!Number.isFinite(seconds)) return "–";
  const at = new Date(seconds * 1000);
  const minute = `${two(at.getHours())}:${two(at.getMinutes())}`;
  if (detail === "m") return minute;
  const second = `${minute}:${two(at.getSeconds())}`;
  return detail === "s" ? second : `${second}.${String(at.getMilliseconds()).padStart(3, "0")}`;
}

export function day(seconds) {
  const at = new Date(seconds * 1000);
  return Number.isNaN(at.getTime()) ? "–" : `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
}

export function ago(seconds) {
  const gone = Date.now() / 1000 - seconds;
  if (!Number.isFinite(gone)) return "–";
  if (gone < 5) return "now";
  if (gone < 60) return `${Math.floor(gone)} s ago`;
  if (gone < 3600) return `${Math.floor(gone / 60)} min ago`;
  if (gone < 86_400) return `${Math.floor(gone / 3600)} h ago`;
  return gone < 30 * 86_400 ? `${Math.floor(gone / 86_400)} d ago` : day(seconds);
}

// The colour a variable has now, for canvases: `light-dark()` is only resolved on an element.
export function colour(name) {
  const probe = h("i", { class: "probe", style: { color: `var(${name})` } });
  document.body.append(probe);
  const value = getComputedStyle(probe).color;
  probe.remove();
  return value;
}

export function canvasOf(canvas, width, height) {
  const ratio = Math.min(3, globalThis.devicePixelRatio || 1);
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  styled(canvas, { width: `${width}px`, height: `${height}px` });
  const pen = canvas.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  return pen;
}

export async function copied(button, text) {
  const label = button.textContent;
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch {
    button.textContent = "Copying is not allowed here";
  }
  setTimeout(() => { button.textContent = label; }, 1500);
}

let made = 0;
const bounded = (value, low, high) => Math.max(low, Math.min(high, value));

// A list in which only the visible rows exist. One tab stop; the selected row is the active descendant.
export class Rows {
  constructor({ height = 26, label, role = "listbox", item = "option", draw, open, choose, keys, hover, empty }) {
    Object.assign(this, { height, item, draw, open, choose, keys, hover, empty });
    this.name = `rows-${++made}`;
    this.items = [];
    this.at = -1;
    this.drawn = new Map();
    this.pad = h("div", { class: "rows-pad", role: "presentation" });
    this.element = h("div", { class: "rows", role, tabindex: 0, "aria-label": label }, this.pad);
    this.element.addEventListener("scroll", () => this.paint(), { passive: true });
    this.element.addEventListener("keydown", (event) => this.pressed(event));
    this.element.addEventListener("focus",
      () => { if (this.at < 0 && this.items.length && this.element.matches(":focus-visible")) this.select(0, false); });
    this.pad.addEventListener("click", (event) => {
      const index = this.indexOf(event.target);
      if (index < 0) return;
      this.select(index);
      this.open?.(this.items[index], index, event);
    });
    if (hover) {
      this.pad.addEventListener("pointermove", (event) => hover(this.items[this.indexOf(event.target)], event));
      this.pad.addEventListener("pointerleave", () => hover(undefined));
    }
    this.watch = new ResizeObserver(() => this.paint());
    this.watch.observe(this.element);
  }

  indexOf(target) {
    const row = target.closest?.("[data-row]");
    return row ? Number(row.dataset.row) : -1;
  }

  set(items, { keep = false } = {}) {
    const chosen = keep ? this.items[this.at] : undefined;
    this.items = items;
    if (keep) this.at = chosen === undefined ? -1 : items.findIndex((item) => item === chosen
      || (item.key !== undefined && item.key === chosen.key));
    else this.at = -1;
    this.pad.style.height = `${items.length * this.height}px`;
    this.again();
  }

  again() {
    this.drawn.forEach((row) => row.remove());
    this.drawn.clear();
    this.paint();
  }

  paint() {
    const room = this.element.clientHeight || 400;
    const first = Math.max(0, Math.floor(this.element.scrollTop / this.height) - 4);
    const last = Math.min(this.items.length, Math.ceil((this.element.scrollTop + room) / this.height) + 4);
    for (const [index, row] of this.drawn) {
      if (index < first || index >= last) {
        row.remove();
        this.drawn.delete(index);
      }
    }
    for (let index = last - 1; index >= first; index -= 1) {
      if (this.drawn.has(index)) continue;
      const row = this.draw(this.items[index], index);
      row.classList.add("row");
      row.id = `${this.name}-${index}`;
      row.dataset.row = index;
      row.setAttribute("role", this.item);
      row.setAttribute("aria-posinset", index + 1);
      row.setAttribute("aria-setsize", this.items.length);
      row.setAttribute("aria-selected", index === this.at);
      row.style.top = `${index * this.height}px`;
      this.drawn.set(index, row);
      this.pad.insertBefore(row, this.drawn.get(index + 1) ?? null);
    }
    if (this.empty) this.empty.hidden = this.items.length > 0;
  }

  select(index, tell = true) {
    if (!this.items.length) return;
    this.at = bounded(index, 0, this.items.length - 1);
    const top = this.at * this.height;
    const { scrollTop, clientHeight } = this.element;
    if (top < scrollTop) this.element.scrollTop = top;
    else if (top + this.height > scrollTop + clientHeight) this.element.scrollTop = top + this.height - clientHeight;
    this.paint();
    for (const [other, row] of this.drawn) row.setAttribute("aria-selected", other === this.at);
    this.element.setAttribute("aria-activedescendant", `${this.name}-${this.at}`);
    if (tell) this.choose?.(this.items[this.at], this.at);
  }

  show(index) {
    this.element.scrollTop = Math.max(0, index * this.height - this.element.clientHeight / 3);
    this.select(index, false);
    const row = this.drawn.get(index);
    row?.classList.add("flash");
  }

  pressed(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const page = Math.max(1, Math.floor(this.element.clientHeight / this.height) - 1);
    const moves = { ArrowDown: 1, j: 1, ArrowUp: -1, k: -1, PageDown: page, PageUp: -page, Home: -1e9, End: 1e9 };
    if (event.key in moves) this.select(this.at + moves[event.key]);
    else if (event.key === "Enter" && this.at >= 0) this.open?.(this.items[this.at], this.at, event);
    else if (!this.keys?.(event, this.items[this.at], this.at)) return;
    event.preventDefault();
    event.stopPropagation();
  }
}

// The card that a hover shows beside the pointer. One for the whole page.
export const card = {
  element: null,
  timer: 0,
  at: null,
  over(key, event, content, delay = 90) {
    if (key === undefined || key === null) return this.away();
    if (this.at === key) return this.place(event);
    this.away();
    this.at = key;
    this.timer = setTimeout(async () => {
      const shown = await content();
      if (this.at !== key || !shown) return;
      this.element ??= document.body.appendChild(h("div", { class: "card", role: "tooltip", id: "card" }));
      this.element.replaceChildren(shown);
      this.element.hidden = false;
      this.place(event);
    }, delay);
  },
  place(event) {
    if (!this.element || this.element.hidden) return;
    const { offsetWidth: wide, offsetHeight: high } = this.element;
    const left = event.clientX + 16 + wide > innerWidth ? event.clientX - wide - 16 : event.clientX + 16;
    styled(this.element, {
      left: `${bounded(left, 8, Math.max(8, innerWidth - wide - 8))}px`,
      top: `${bounded(event.clientY + 14, 8, Math.max(8, innerHeight - high - 8))}px`,
    });
  },
  away() {
    clearTimeout(this.timer);
    this.at = null;
    if (this.element) this.element.hidden = true;
  },
};

// Long texts in pieces that the browser lays out when they become visible.
export function longText(text, attributes = {}) {
  const shown = visible(text);
  const box = h("div", { class: "text", ...attributes });
  const size = 16_000;
  for (let from = 0; from < shown.length || from === 0;) {
    const end = shown.lastIndexOf("\n", from + size);
    let to = shown.length - from <= size ? shown.length : end > from ? end + 1 : from + size;
    if (to < shown.length && shown.charCodeAt(to - 1) >= 0xd800 && shown.charCodeAt(to - 1) < 0xdc00) to += 1;
    box.append(h("div", { class: "piece", dir: "auto" }, shown.slice(from, to)));
    if (to <= from) break;
    from = to;
  }
  return box;
}

// A panel at the right edge: modal, closed with Esc; the focus returns to where it was.
export class Drawer {
  constructor(label) {
    this.element = h("dialog", { class: "drawer", "aria-label": label, tabindex: -1 });
    this.element.addEventListener("click", (event) => { if (event.target === this.element) this.close(); });
    this.element.addEventListener("close", () => {
      const closed = this.onclose;
      this.onclose = null;
      this.from?.isConnected && this.from.focus({ preventScroll: true });
      this.element.remove();
      closed?.();
    });
  }

  open(...content) {
    card.away();
    const held = this.element.contains(document.activeElement) && document.activeElement.getAttribute("aria-label");
    this.element.replaceChildren(...content);
    if (!this.element.open) {
      this.from = document.activeElement;
      document.body.append(this.element);
      this.element.showModal();
    }
    // Keep the focus in the panel when the button that had it was replaced.
    const again = [...this.element.querySelectorAll("button:enabled")].find((button) =>
      button.getAttribute("aria-label") === held);
    (again ?? this.element).focus();
    return this.element;
  }

  close() {
    if (this.element.open) this.element.close();
  }
}
