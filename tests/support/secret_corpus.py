# ruff: noqa: RUF002 - the brackets of the holes are meant
"""A labelled corpus for redaction: texts that hold a secret, and texts that only look as if they did.

Owns: the language of the templates and the generator; the templates stand in secret_corpus_dev.py and ..._held.py.
Must never: hold a real secret, or a literal that a scanner of secrets would take for one.

    rows("dev")     what the engine is built against
    rows("held")    other vendors, carriers, key names and syntaxes: kept from whoever builds the engine
    real(folder)    lines of real transcripts and of installed packages, all taken to be free of secrets

A template is one line. `⏎` is a newline, `⇥` a tab, `␛` the escape character. `‹…›` is a hole:

    ‹h40›     40 characters of the class `h`; ‹w20-30› between 20 and 30 (see CLASSES)
    ‹word›    something from WORDS, or made by one of MAKERS
    ‹K›       a key name, ‹S› the secret that the caller brings
    ‹!h40›    a hole whose content is secret: it must be gone from the output

Decisions on doubtful cases: documented placeholders (`changeme`, `your-token`, `AKIA…EXAMPLE`) are no secrets;
cursors of pagination are none either; a token cut off by an agent is one as long as 60 % of it stand there; the user
name in a URL may stay, the password may not; a one-time link of a webhook is a secret in its path.
"""

from __future__ import annotations

import base64
import gzip
import json
import re
import sysconfig
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

LOWER, UPPER, DIGITS = "abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "0123456789"
CLASSES = {
    "a": LOWER + UPPER,
    "b": LOWER + UPPER + DIGITS + "_-",
    "c": "QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L",
    "B": LOWER + UPPER + DIGITS + "+/",
    "d": DIGITS,
    "h": "0123456789abcdef",
    "H": "0123456789ABCDEF",
    "l": LOWER + DIGITS,
    "r": "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567",
    "u": UPPER + DIGITS,
    "w": LOWER + UPPER + DIGITS,
    "x": "x",
    "z": LOWER,
}
HOLE = re.compile(r"‹(!?)([A-Za-z]+?)(?:(\d+)(?:-(\d+))?)?›")


@dataclass(frozen=True, slots=True)
class Row:
    """One case: `secrets` must be gone from the output, `keep` must stand in it; without a label nothing may change."""

    text: Any
    secrets: tuple[str, ...]
    keep: tuple[str, ...]
    kind: str
    family: str
    label: bool


def templates(block: str) -> list[str]:
    """The lines of a block, with its signs for control characters replaced."""
    signs = {"⏎": "\n", "⇥": "\t", "␛": "\x1b"}
    return [re.sub("[⏎⇥␛]", lambda m: signs[m[0]], line) for line in block.strip("\n").split("\n") if line.strip()]


def fill(
    template: str, rng: Random, given: dict[str, str], escape: Callable[[str], str] = str
) -> tuple[str, list[str]]:
    """The text of a template, and its secrets as they stand in it."""
    secrets: list[str] = []

    def hole(match: re.Match[str]) -> str:
        secret, name, low, high = match.groups()
        if name in given:
            value = given[name]
        elif low:
            value = "".join(rng.choices(CLASSES[name], k=rng.randint(int(low), int(high or low))))
        elif name in MAKERS:
            value = MAKERS[name](rng)
        else:
            value = rng.choice(WORDS[name])
        value = escape(value)
        if secret:
            secrets.append(value)
        return value

    return HOLE.sub(hole, template), secrets


def _shape(rng: Random, *shapes: str) -> str:
    return fill(rng.choice(shapes), rng, {})[0]


def _human(rng: Random) -> str:
    """A password as people choose them, without a character that needs quotes."""
    return _shape(rng, *HUMAN)


def _quoted(rng: Random) -> str:
    """A password that needs quotes: blanks, punctuation, letters of other alphabets."""
    return _shape(rng, *QUOTED)


def _machine(rng: Random) -> str:
    return _shape(rng, "‹B43›=") if rng.random() < 0.1 else _plain_token(rng)


def _plain_token(rng: Random) -> str:
    """A token that a URL can hold as it is."""
    return _shape(rng, "‹w20-44›", "‹h32›", "‹h64›", "‹b24-43›", "‹l24›", "‹uuid›", "‹u32›", "‹w8›.‹b22›", "‹h40›")


HUMAN = """
‹Season›20‹d2›! ‹Season›‹d4› ‹noun›‹d2-4› ‹noun›‹noun›‹d1› ‹Season›_‹noun›.‹d2› P4ss‹noun›‹d2› ‹noun›-‹noun›-‹noun›
‹a3›‹d3› ‹w6› ‹w8› ‹w5›*‹w5› ‹w4›.‹w6›~‹w3› ‹noun›+‹d3›!‹Season› ‹w12-18›
""".split()
QUOTED = """
‹noun› ‹noun› ‹noun› ‹noun›|‹w5›#‹w4›&‹w3›|‹Season›@‹d4›|‹w4›;‹w3›:‹w4›|‹noun›$‹d3›^‹w3›|pä‹noun›‹d3›ß
|‹noun›,‹noun›‹d2›?|(‹w6›)[‹w4›]|‹w3›/‹w5›=‹w4›|密码‹noun›‹d3›|‹noun› ‹d4›!
""".replace("\n", "").split("|")

MAKERS: dict[str, Callable[[Random], str]] = {
    "pw": _human,
    "qpw": lambda rng: rng.choice((_quoted, _quoted, _human))(rng),
    "tok": _machine,
    "any": lambda rng: rng.choice((_human, _machine))(rng),
    "qany": lambda rng: rng.choice((_human, _machine, _quoted))(rng),
    "utok": _plain_token,
    "uany": lambda rng: rng.choice((_human, _plain_token))(rng),
    "uuid": lambda rng: _shape(rng, "‹h8›-‹h4›-4‹h3›-a‹h3›-‹h12›"),
    "ulid": lambda rng: "01" + "".join(rng.choices("0123456789ABCDEFGHJKMNPQRSTVWXYZ", k=24)),
    "jwt": lambda rng: _jwt({"alg": "HS256", "typ": "JWT"}, rng, "‹b43›"),
    "jwtbare": lambda rng: _jwt({"alg": "none"}, rng, ""),
    "AKIA": lambda rng: _shape(rng, "AKIA‹r16›"),
    "basic": lambda rng: base64.b64encode(f"{_shape(rng, '‹user›')}:{_human(rng)}".encode()).decode(),
    "kpw": lambda rng: base64.b64encode(_machine(rng).encode()).decode(),
    "pem": lambda rng: _body(rng, "\n"),
    "epem": lambda rng: _body(rng, "\\n"),
    "crpem": lambda rng: _body(rng, "\r\n"),
    "ipem": lambda rng: _body(rng, "\n    "),
    "flatpem": lambda rng: _body(rng, " "),
    "pemb": lambda rng: base64.b64encode(f"-----BEGIN RSA PRIVATE KEY-----\n{_body(rng, chr(10))}".encode()).decode(),
    "certbody": lambda rng: _body(rng, "\n"),
}


def _jwt(header: dict[str, str], rng: Random, signature: str) -> str:
    claims = {"sub": _shape(rng, "‹d10›"), "name": _shape(rng, "‹noun›"), "iat": 1_700_000_000 + rng.randrange(9**8)}
    return f"{_b64url(header)}.{_b64url(claims)}.{_shape(rng, signature)}"


def _b64url(value: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(value, separators=(",", ":")).encode()).decode().rstrip("=")


def _body(rng: Random, join: str) -> str:
    """The base64 lines of a key."""
    return join.join(
        [_shape(rng, "MII‹B61›"), *(_shape(rng, "‹B64›") for _ in range(rng.randint(3, 9))), _shape(rng, "‹B42›==")]
    )


WORDS = {
    "dash": ["-----"],
    "Season": "Summer Winter Spring Autumn Monday October Falcon Dragon Welcome".split(),
    "noun": "tiger river copper lantern marble orbit velvet walnut pepper harbor cactus puzzle rocket saddle".split(),
    "user": "alice bob deploy admin svc_app ci-bot reporting jdoe postgres root".split(),
    "host": "db.internal.example.com 10.0.3.17 cache.prod.example.org api.example.io localhost mq.example.net".split(),
    "name": "billing reports gateway worker inventory frontend scheduler ledger".split(),
    "path": "src/auth/login.py app/models/user.rb pkg/server/handler.go web/src/Login.tsx conf/settings.py".split(),
    "lang": "python typescript go bash yaml json".split(),
    "prose": [
        "The build passed after the cache was cleared.",
        "I will look at the failing test next.",
        "Done, two files changed.",
        "Let me check how the service reads its settings.",
        "The migration ran without errors on staging.",
    ],
}


@dataclass(frozen=True, slots=True)
class Part:
    """The templates of one part, as blocks of lines."""

    vendors: str
    named: str
    bare: str
    keyed: str
    cut: str
    keys: list[str]
    positive: dict[str, str]
    json_positive: str
    negative: dict[str, str]
    json_negative: str
    wraps: str


def rows(part: str) -> list[Row]:
    """All rows of a part, the same in every run."""
    from secret_corpus_dev import DEV

    if part == "dev":
        return list(_rows(DEV, DEV, Random(part)))
    from secret_corpus_held import HELD

    return list(_rows(HELD, DEV, Random(part)))


def _rows(part: Part, known: Part, rng: Random) -> Iterator[Row]:
    yield from _vendor_rows(part, known, rng)
    wraps, alone = templates(part.wraps), ["‹T›"]
    for family, block in part.positive.items():
        for template in templates(block):
            for _ in range(10):
                around = alone if family == "pem" else wraps
                yield _positive(template, rng, _cases(rng.choice(part.keys)), family, family, around)
    for template in templates(part.json_positive):
        for form in range(24):
            yield _json_row(template, rng, _cases(rng.choice(part.keys)), "json", form % 6, True)
    for family, block in part.negative.items():
        for template in templates(block):
            for turn in range(10 if part is known else 14):
                text = fill(template, rng, {"NAME": rng.choice(WORDS["name"]).upper(), "word": "text"})[0]
                yield Row(_wrap(text, rng, wraps if turn else alone), (), (), family, "negative " + family, False)
    for template in templates(part.json_negative):
        for form in range(24):
            yield _json_row(template, rng, {}, "negative json", form % 6, False)


def _vendor_rows(part: Part, known: Part, rng: Random) -> Iterator[Row]:
    """Each vendor in a sample of carriers; in the held part also known vendors in new carriers."""
    fresh = [line.split() for line in templates(part.vendors)]
    bare, keyed, cut, wraps = (templates(block) for block in (part.bare, part.keyed, part.cut, part.wraps))
    crowd = [(vendor, 6, 6, 2) for vendor in fresh]
    crowd += [(line.split(), 0, 12, 0) for line in templates(part.named)]
    if part is not known:
        crowd += [(line.split(), 2, 2, 1) for line in templates(known.vendors)]
    for (name, shape, key), *counts in crowd:
        sorts = ("vendor", "vendor" if counts[0] else "vendor in context", "vendor cut")
        for kind, carriers, count in zip(sorts, (bare, keyed, cut), counts, strict=True):
            if kind == "vendor cut" and not (name == "jwt" or re.match(r"(?!http)[^‹]{3}", shape)):
                continue  # half of it would show nothing
            for carrier in rng.sample(carriers, min(count, len(carriers))):
                token = fill(shape, rng, {})[0]
                token = token[: int(len(token) * rng.uniform(0.6, 0.95))] if kind == "vendor cut" else token
                yield _positive(carrier, rng, _cases(key) | {"S": token}, kind, name, wraps)


def _cases(key: str) -> dict[str, str]:
    """A key name as it came, in lower case and in upper case."""
    flat = re.sub(r"[-. ]", "_", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", key))
    return {"K": key, "k": flat.lower(), "U": flat.upper()}


def _positive(template: str, rng: Random, given: dict[str, str], kind: str, family: str, wraps: list[str]) -> Row:
    text, secrets = fill(template, rng, given)
    return Row(_wrap(text, rng, wraps), tuple(secrets), _keep(template, given), kind, family, True)


SCHEMES = {"basic", "bearer", "token"}
"""Words that may go together with the secret behind them."""


def _keep(template: str, given: dict[str, str]) -> tuple[str, ...]:
    """What must stay: the key name, and the first and the last word that touch no hole."""
    named = [given[name] for name in "KkU" if f"‹{name}›" in template and name in given]
    words = [word for word in template.split() if len(word) > 3 and word.isalpha() and word.lower() not in SCHEMES]
    return () if "‹dash›" in template else tuple(dict.fromkeys([*named, *words[:1], *words[-1:]]))


def _wrap(text: str, rng: Random, wraps: list[str]) -> str:
    return fill(rng.choice(wraps), rng, {"T": text})[0]


def _json_row(template: str, rng: Random, given: dict[str, str], kind: str, form: int, label: bool) -> Row:
    """A JSON template in one of six forms: value, text, indented text, and as a string inside JSON once or twice."""
    text, secrets = fill(template, rng, given, lambda value: _inside(value, ascii=False))
    plain = [json.loads(f'"{secret}"') for secret in secrets]
    out: Any = text
    if form == 0:
        out, secrets = json.loads(text), plain
    elif form == 2:
        out, secrets = json.dumps(json.loads(text), indent=2), [_inside(secret) for secret in plain]
    elif form == 3:
        out = {"role": "tool", "content": text}
    for _ in range(form - 3):
        out, secrets = json.dumps({"content": out}), [_inside(secret) for secret in secrets]
    family = kind + (" value", " text", " indented", " in value", " escaped", " escaped twice")[form]
    return Row(out, tuple(secrets), _keep(template, given)[:1] if given else (), kind, family, label)


def _inside(value: str, ascii: bool = True) -> str:
    """A text as it stands between the quotes of JSON."""
    return json.dumps(value, ensure_ascii=ascii)[1:-1]


TELLING = re.compile(
    r"""(?i)(?:token|secret|passw|pwd|api.?key|auth|cookie|credential)\w*["'\]]{0,2}\s*[:=]|bearer|://\S*@|[0-9a-f]{32}"""
)
"""What makes a line worth trying: something in it could be taken for a secret."""


def real(folder: Path, limit: int = 6000) -> list[Row]:
    """Lines of real transcripts and of the source of installed packages, evenly spread.

    The transcripts were cleaned by those who published them, and a reader found none of these lines to hold a secret;
    packages show a few made-up ones in their documentation.
    """
    found: list[Row] = []
    sources = {"real transcripts": transcript_lines(folder), "real packages": _package_lines()}
    for family, lines in sources.items():
        unique = list({line.strip()[:40]: line for line in lines if 20 < len(line) < 20_000}.values())
        hard = [line for line in unique if TELLING.search(line)]
        picked = hard[:: max(1, len(hard) // limit)] + unique[:: max(1, len(unique) // limit)]
        found += [Row(line, (), (), family, family, False) for line in dict.fromkeys(picked)]
    return found


def transcript_lines(folder: Path) -> Iterator[str]:
    """All that was said, called and answered, line by line."""
    for path in sorted(folder.glob("*.jsonl.gz")):
        with gzip.open(path, "rt", encoding="utf-8") as file:
            for transcript in file:
                for message in json.loads(transcript)["messages"]:
                    calls = [call["function"]["arguments"] for call in message.get("tool_calls") or ()]
                    texts = [message["content"] if isinstance(message.get("content"), str) else "", *calls]
                    yield from (line for text in texts for line in text.split("\n"))


def _package_lines() -> Iterator[str]:
    """Python sources: the standard library and what stands in the environment."""
    for root in (sysconfig.get_paths()["stdlib"], sysconfig.get_paths()["purelib"]):
        for path in sorted(Path(root).rglob("*.py")):
            if "test" not in str(path.relative_to(root)):
                yield from path.read_text(encoding="utf-8", errors="replace").split("\n")
