// The addresses of the screens, behind the `#` of the URL.
//
// Owns: writing and reading them. Must never: draw, or leave a session id unencoded: it may contain anything.

const encoded = (text) => encodeURIComponent(String(text).toWellFormed());

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

export const home = "#/";
export const toSession = (session) => `#/s/${encoded(session)}`;
export const toFold = (session, step, line) =>
  `${toSession(session)}/fold/${step}${line === undefined || line === null ? "" : `/m/${line}`}`;
export const toSpan = (session, span) => `${toSession(session)}/span/${encoded(span)}`;
export const toSearch = (session, words) => `${toSession(session)}/search/${encoded(words)}`;

export function placeOf(hash) {
  const [, kind, session, part, value, m, line] = hash.replace(/^#/, "").split("/");
  if (kind !== "s" || !session) return { name: "home" };
  const place = { name: "session", session: decoded(session) };
  if (part === "fold") return { ...place, name: "fold", step: Number(value),
    line: m === "m" && line !== "" ? Number(line) : undefined };
  if (part === "span" && value) return { ...place, span: decoded(value) };
  if (part === "search") return { ...place, name: "search", words: decoded(value ?? "") };
  return place;
}
