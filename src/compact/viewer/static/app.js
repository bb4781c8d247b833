// The page: routing between screens, the live indicator, the theme, the keyboard shortcuts.
//
// Owns: the frame around the screens. Must never: know what a screen shows.

import { h, oneLine, visible, card } from "./dom.js";
import { Stream, get } from "./api.js";
import { home, placeOf, toFold, toSearch, toSession } from "./places.js";
import { Rail, welcome } from "./sessions.js";
import { SessionPage } from "./session.js";
import { FoldPage } from "./foldpage.js";
import { SearchPage } from "./search.js";

const at = (id) => document.getElementById(id);
const main = at("main");
const announce = (text) => { at("said").textContent = text; };
let page = null;
let place = {};
let cameFrom = null;

// -- screens --------------------------------------------------------------------------------------------------------

const rail = new Rail(at("rail"));
rail.onload = (loaded) => { if (place.name === "home") main.replaceChildren(welcome(loaded)); };

function route() {
  const next = placeOf(location.hash);
  const same = page && next.name === place.name && next.session === place.session && next.step === place.step
    && next.words === place.words;
  const before = place;
  place = next;
  card.away();
  if (same) {
    if (next.name === "session" && next.span && next.span !== before.span) page.choose(next.span);
    if (next.name === "fold" && next.line !== undefined) page.view?.reveal(next.line);
    return;
  }
  page?.leave();
  page = null;
  const back = cameFrom?.to === location.hash ? cameFrom : null;
  cameFrom = null;
  rail.here(next.session);
  document.body.classList.toggle("home", next.name === "home");
  crumbs(next);
  if (innerWidth < 1100) slide(false);
  if (next.name === "home") {
    main.replaceChildren(welcome(rail.loaded));
    slide(true);
    return;
  }
  if (next.name === "fold") page = new FoldPage(next.session, next.step, { cite: follow, back });
  else if (next.name === "search") page = new SearchPage(next.session, next.words);
  else page = new SessionPage(next.session, { cite: follow });
  main.replaceChildren(page.element);
  main.scrollTop = 0;
  page.load(next.name === "fold" ? next.line : next.span);
}

function crumbs({ name, session, step, words }) {
  const parts = [];
  if (session !== undefined) parts.push(h("a", { href: toSession(session), dir: "auto",
    "aria-current": name === "session" ? "page" : undefined }, oneLine(session) || "(no name)"));
  if (name === "fold") parts.push(h("span", { "aria-current": "page" }, `compaction ${step}`));
  if (name === "search") parts.push(h("span", { "aria-current": "page" }, "search"));
  at("crumbs").replaceChildren(...parts.flatMap((part) => [h("span", { class: "slash", "aria-hidden": "true" }, "/"),
    part]));
  at("find").hidden = session === undefined;
  at("find-text").value = name === "search" ? words : "";
  document.title = session === undefined ? "compact"
    : `${name === "fold" ? `Compaction ${step} · ` : ""}${visible(session).slice(0, 80)} · compact`;
}

// A citation names a message; it may be in the transcript of an earlier compaction.
async function follow(session, first, last, step, near) {
  try {
    const found = await get("/api/where", { session, position: first, step: step || undefined });
    const to = toFold(session, found.step, found.line);
    if (place.name === "fold" && found.step === place.step) return page.view.reveal(found.line);
    cameFrom = { to, hash: location.hash, name: place.name === "fold" ? `compaction ${place.step}` : "the session",
      says: `Message #${first} was compacted in compaction ${found.step}, so the original is shown there.` };
    location.hash = to;
  } catch (error) {
    if (near) near();
    else toast(error.message);
  }
}

let calm = 0;
function toast(text) {
  announce(text);
  at("said").classList.add("shown");
  clearTimeout(calm);
  calm = setTimeout(() => at("said").classList.remove("shown"), 6000);
}

// -- live -----------------------------------------------------------------------------------------------------------

let quiet = 0;
let grace = 0;
const stream = new Stream(
  (rows) => {
    page?.onrows?.(rows);
    rail.touched(rows);
    at("live").dataset.state = "busy";
    clearTimeout(quiet);
    quiet = setTimeout(() => { if (at("live").dataset.state === "busy") state("live"); }, 1500);
  },
  (now) => {
    clearTimeout(grace);
    if (now === "live") {
      page?.catchUp?.();
      if (!at("lost").hidden) rail.refresh();
      state("live");
    } else grace = setTimeout(() => state("lost"), 800);
  },
);

function state(now) {
  at("live").dataset.state = now;
  at("live").lastElementChild.textContent = now === "lost" ? "offline" : "live";
  at("lost").hidden = now !== "lost";
  at("lost").textContent = now === "lost"
    ? "Lost the connection to the viewer. Retrying; what is shown is what was known. If it does not come back: is `compact view` still running?" : "";
}

// -- theme, rail, keys ----------------------------------------------------------------------------------------------

function theme(name) {
  if (name) document.documentElement.dataset.theme = name;
  page?.redraw();
}

const isDark = () => (document.documentElement.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches
  ? "dark" : "light")) === "dark";

function turn() {
  const name = isDark() ? "light" : "dark";
  localStorage.setItem("theme", name);
  theme(name);
}

function slide(open) {
  document.body.classList.toggle("railed", open);
  at("rail-toggle").setAttribute("aria-expanded", open);
}

const KEYS = [
  ["j  k  or  ↓ ↑", "Move in a list"], ["→ ←", "Open and close in the tree; between compactions on the timeline"],
    ["Enter", "Open what is chosen"], ["Esc", "Close, or one step back"],
  ["[  ]", "Previous and next compaction"], ["/", "Search this session's archive"], ["s", "Go to the sessions"],
    ["b", "Show or hide the sessions"], ["t", "Light or dark"], ["?", "These keys"],
    ["drag, double click", "Zoom the timeline, and out again"],
];

function help() {
  const box = h("dialog", { class: "help", "aria-label": "Keys" }, h("h2", {}, "Keys"),
    h("dl", {}, KEYS.map(([keys, says]) => [h("dt", {}, h("kbd", {}, keys)), h("dd", {}, says)])),
    h("button", { type: "button", class: "button", onclick: () => box.close() }, "Close"));
  box.addEventListener("close", () => box.remove());
  box.addEventListener("click", (event) => { if (event.target === box) box.close(); });
  document.body.append(box);
  box.showModal();
}

function pressed(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented
    || document.querySelector("dialog[open]")) return;
  const typing = event.target.matches?.("input, textarea");
  if (event.key === "Escape" && typing) {
    event.target.blur();
    main.focus();
  } else if (typing) return;
  else if (event.key === "Escape") { if (!page?.back?.() && place.name !== "home") location.hash = home; }
  else if (event.key === "/" && !at("find").hidden) at("find-text").focus();
  else if (event.key === "/" || event.key === "s") { slide(true);
    (event.key === "s" ? rail.list.element : rail.filter).focus(); }
  else if (event.key === "?") help();
  else if (event.key === "t") turn();
  else if (event.key === "b") slide(!document.body.classList.contains("railed"));
  else if (event.key === "[" && page?.around?.before) location.hash = toFold(place.session, page.around.before);
  else if (event.key === "]" && page?.around?.after) location.hash = toFold(place.session, page.around.after);
  else return;
  event.preventDefault();
}

const kept = localStorage.getItem("theme");
if (kept === "light" || kept === "dark") theme(kept);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => theme());
at("theme").addEventListener("click", turn);
at("help").addEventListener("click", help);
at("rail-toggle").addEventListener("click", () => slide(!document.body.classList.contains("railed")));
at("skip").addEventListener("click", (event) => { event.preventDefault(); main.focus(); });
at("find").addEventListener("submit", (event) => { event.preventDefault();
  location.hash = toSearch(place.session, at("find-text").value); });
addEventListener("keydown", pressed);
addEventListener("hashchange", route);
slide(innerWidth >= 1100);
route();
stream.open();
rail.load();
