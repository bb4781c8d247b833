"""What a value looks like, whatever it is called.

Owns: which values are placeholders, references, code or prose; which look random.
Must never: know the names that values stand under, or remember a value.
"""

from __future__ import annotations

import re

__all__ = [
    "cookie_is_secret",
    "drawn_by_lot",
    "harmless",
    "is_count",
    "looks_chosen",
    "looks_random",
    "prose",
    "stands_in",
    "word_list",
]

_STAND_INS = frozenset(
    """
    none null nil undefined void true false yes no on off str string text int integer number float bool boolean bytes
    any object array list dict map optional required default unknown empty unset missing disabled enabled inherit
    hidden masked redacted removed omitted secret password passwd passphrase token key pass pwd credential credentials
    apikey username user example sample test testing dummy fake mock foo bar baz foobar todo tbd fixme changeme
    change_me change-me changeit placeholder value bearer basic digest negotiate here n/a access refresh id session
    cookie public private input output auto manual never always prompt ask env file stdin vault keyring keychain plain
    same sha256 sha512 md5 aws4-hmac-sha256 bcrypt scrypt argon2 pbkdf2 hmac rsa ecdsa ed25519 aes char varchar self
    read write set expired valid invalid revoked present absent provided configured active inactive granted issued
    confirmed nullable sometimes ollama not-needed not-used no-key lm-studio admin root postgres mysql guest
    passwort kennwort wachtwoord senha parola clave jeton heslo salasana haslo motdepasse
    this other left right include same-origin omit unused ignored oauth2 oauth saml ldap kerberos jwt
    """.split()
)
_TELLING_WORDS = frozenset(
    "password passwd passphrase pwd secret secrets token tokens key keys auth credential credentials cookie pass "
    "authorization authentication".split()
)
_STOP_WORDS = frozenset(
    "a an the is are was be been has have of to in on at for from with without and or not no must should can cannot "
    "will may your you my our their his her its this that it at least if when by as "
    "der die das und ist le la les de el los".split()
)
# Looked for behind the name: to try every way to part it would take long.
_ENDS_OF_TYPES = "|".join(
    f"(?<=[A-Za-z0-9]{end})"
    for end in "Key Token Secret Form Credential Credentials Auth Password Provider Config Type Schema Header Model "
    "Policy Bearer".split()
)
_STANDS_FOR = re.compile(
    r"\s*|[*•.…#?_=-]{2,}|([A-Za-z0-9*])\1{2,}|<[^<>]*>|\[[A-Za-z_. -]*\]"
    # a colour, a version, a number with its unit or format
    r"|#[0-9a-fA-F]{3,8}|[\^~<>=v]{0,2}[0-9]+(?:\.[0-9x*]+){1,12}(?:-[a-z0-9.]+)?"
    r"|[<>^]?0?[0-9]{1,3}(?:\.[0-9]+)?[bcdeEfFgGnosxX%]"
    # a variable, a hole of a template, an argument of a statement
    r"|\$\{.*|\$\(.*|\$[A-Za-z_][\w.:]*|\$[0-9]|\{\{?.*\}?\}|%\w+(?:\([^()]*\))?%|[0-]{6,}|%\(\w+\)s|(?:%[-0-9.]*[sdrvqx]\W?){1,4}|:[a-z_]\w*"
    r"|@{1,2}[A-Za-z_./][\w./:-]*@{0,2}|[0-9]?\*[a-z]+"
    # a type, and an object of Kubernetes
    rf"|\*?(?:\w++\.)*+_?[A-Z][A-Za-z]*+(?:[0-9]{{1,5}}+[A-Z][A-Za-z]*+){{0,4}}+(?:{_ENDS_OF_TYPES})"
    r"|_[A-Z][a-z]+[A-Z]?|[a-z]+(?:-[a-z0-9]+)*-(?:tls|secrets?|creds|certs?)"
    r"|#\{.*|!(?:[A-Z]{2,}+(?:_[A-Z]++)*+|[A-Za-z]?[a-z]+(?:[_A-Z][a-z]+)*+)(?:[ .:(\[|].*)?|ENC[\[(].*|\{cipher\}.*"
    # what is kept elsewhere
    r"|sha(?:1|256|384|512)[-:][A-Za-z0-9+/=]+|(?:env|file|vault|ssm|op|gcp-secret|secretref|keyvault|awskms|ref|ref\+\w+|arn|keyring|projects)[:/].*"
    r"|(?:process\.env|os\.environ|os\.getenv|System\.getenv|ENV|env|secrets|vars?|data|local|self|this|config|settings)"
    r"[.\[(].*"
    # paths and addresses
    r"|(?:~|\.{1,2})?/[\w.@+-]+(?:/[\w.@+-]*)*|[A-Za-z]:\\.*|[a-z][a-z0-9+.-]*://[^\s@]*"
    r"|[\w./-]+\.(?:pem|key|crt|cer|json|ya?ml|txt|p12|pfx|jks|env|py|js|ts|go|rb|md)"
    # ids that providers of models hand out
    r"|(?:call|toolu|resp|msg|run|thread|asst|req|fc|rs|chatcmpl)[_-][A-Za-z0-9_-]+"
    r"|(?i:<?your[_ -]?\w*)",
    re.DOTALL,
)
"""What stands for a secret or for something else, as a whole."""

_HOLDS = re.compile(
    # holes of templates, and signs that only regular expressions have
    r"\{\{.*\}\}|\$\{.*\}|<[a-zA-Z][\w -]*>|\{[A-Za-z_][\w.]*(?:![rsa])?(?::[^{}]*)?\}"
    r"|\\[wdsbWDS]|\[\^|\(\?[:=!P]|\][+*]|\.\*"
    # rules that a form checks
    r"|\b(?:required|nullable|confirmed)\||\|(?:min|max):[0-9]",
    re.DOTALL,
)
# Words that only placeholders have; looked for in lower case, which is quicker than ignoring it.
_SAYS_SO = re.compile(
    r"\b(?:your|my|the|some|an?)[_ -].*(?:key|token|secret|password|passwd|pass|id|here|value|name)\b"
    r"|(?:your|insert|replace|enter|change|put|add)[_ -]?(?:your|me|this|it|here|with|the|a)?[_ -]"
    r"|placeholder|changeme|change_me|redacted|x{4,}|\*{4,}|[_-]here|goes[_ -]here|dummy|example|not[_-]a[_-]real"
    r"|([a-z0-9])\1{9,}",
    re.DOTALL,
)
_CUT_OFF = re.compile(r"(?:\.{3}|…|\[\.{3}\]).*\Z", re.DOTALL)
_WORD_IN_NAME = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+|[^\W\d_a-zA-Z]+")
_IDENTIFIER = re.compile(r"[A-Za-z_][\w.:-]*")
_LONGEST_STAND_IN = 512
_LONG = 24
_PUBLIC = (
    "ssh-rsa AAAA",
    "ssh-ed25519 AAAA",
    "ssh-dss AAAA",
    "ecdsa-sha2-",
    "sk-ssh-",
    "-----BEGIN CERT",
    "-----BEGIN PUB",
)
_SHOUTED = ("TOKEN", "KEY", "SECRET", "PASSWORD")
_TURNS = re.compile(r"[a-z][A-Z0-9]|[A-Z][0-9]|[0-9][A-Za-z]")


def word_list(name: str) -> list[str]:
    """The words of a name in any case style, in lower case."""
    return [word.lower() for word in _WORD_IN_NAME.findall(name)]


def harmless(value: str) -> bool:
    """Whether a value is no secret whatever it stands under: a placeholder, a reference, a type, a path, an id."""
    if value.startswith(_PUBLIC):
        return True
    if len(value) > _LONGEST_STAND_IN:
        return False
    head = _CUT_OFF.sub("", value) if "..." in value or "…" in value else value
    if head != value:
        # What every JWT starts with tells nothing.
        return not looks_random(head) or (head.startswith("eyJ") and len(head) < 20) or harmless(head)
    if value.lower().rstrip("=: ") in _STAND_INS or (_STANDS_FOR.fullmatch(value) and not _is_base64(value)):
        return True
    if not value.isalnum() and _HOLDS.search(value):
        return True
    says_so = _SAYS_SO.search(value.lower())
    if says_so and value.isalnum() and len(value) >= _LONG and any(map(str.isdigit, value)):
        # Four letters of a word turn up by chance in what was drawn by lot.
        return 4 * len(says_so[0]) >= len(value) or stands_in(value)
    return bool(says_so) or _names_something(value)


def _is_base64(value: str) -> bool:
    """Whether what could be a path is base64 that starts with a slash."""
    if value[0:1] != "/" or "." in value or "-" in value or len(value) < 16:
        return False
    return any(len(part) >= 8 and len(_TURNS.findall(part)) >= 5 for part in value.split("/"))


def _names_something(value: str) -> bool:
    """A name such as `DB_PASSWORD`, `user-token` or `accessToken2`: words, one of them telling, and hardly a digit."""
    if value.isupper() and value.isalpha() and value.endswith(_SHOUTED):
        return True
    if not _IDENTIFIER.fullmatch(value) or sum(map(str.isdigit, value)) > 4:
        return False
    words = word_list(value)
    if value.isalnum() and not value.isupper() and not value.isalpha() and not _tells_in_small_letters(value):
        return False
    if _TELLING_WORDS.isdisjoint(words) or len(_TURNS.findall(value)) > 5:
        return False
    return sum(len(word) < 2 for word in words) < 2


def _tells_in_small_letters(value: str) -> bool:
    """Whether a telling word is written as names are joined: `accessToken2`, and not `NqBetKEY1Tja`."""
    return any(word.lower() in _TELLING_WORDS and not word.isupper() for word in _WORD_IN_NAME.findall(value))


def prose(value: str) -> bool:
    """Whether a value reads like words for people: a label, a message, a translation."""
    words = value.split()
    if not words or (len(words) < 4 and any(map(str.isdigit, value))):
        return False
    plain = [word.strip(".,:;!?()'\"*`…-") for word in words]
    if len(words) == 1:
        return plain[0].isalpha() and ((words[0].istitle() and len(words[0]) > 3) or not words[0].isascii())
    low = {word.lower() for word in plain}
    if not low.isdisjoint(_STOP_WORDS) or not low.isdisjoint(_TELLING_WORDS):
        return True
    return words[0][:1].isupper() and all(word.isalpha() for word in plain if word)


_COUNTED = re.compile(
    r"v?[0-9]+(?:\.[0-9]+)*(?:[A-Za-z%]{1,3}|[-.]?(?:alpha|beta|rc|dev)\.?[0-9]*)?"
    r"|[0-9]{4}-[0-9]{2}-[0-9]{2}.*|0x[0-9a-fA-F]{1,8}|[a-z]{2,5}[0-9]|(?i:utf|iso|sha|md|rs|hs|es)-?[0-9-]+"
)
_JOINED_WORDS = re.compile(
    r"(?:[A-Z]{1,5})?[a-z]{2,}(?:[A-Z]{1,4}[a-z]{2,}|[A-Z]{2,4}|(?:At|By|In|On|Of|To|Id)(?![a-z]))*+|[A-Z]+s?|[A-Za-z]"
)
_BETWEEN_WORDS = re.compile(r"[_. /-]")


def looks_random(value: str, least: int = 8) -> bool:
    """Whether a value mixes kinds of letters as passwords and tokens do, and words, numbers and dates do not."""
    if len(value) < least:
        return False
    digits, letters = any(map(str.isdigit, value)), any(map(str.isalpha, value))
    if digits and letters:
        return not _COUNTED.fullmatch(value)
    if letters:
        return _odd_case(value)
    return sum(map(str.isdigit, value)) >= 12 and len(set(value)) > 4


def _odd_case(value: str) -> bool:
    """Upper and lower case mixed as no way of joining words does."""
    if value.islower() or value.isupper():
        return False
    return any(part and not _JOINED_WORDS.fullmatch(part) for part in _BETWEEN_WORDS.split(value))


_SIGNS = re.compile(r"[!@#$%^*+~=]")


def looks_chosen(value: str, *, words: bool = True) -> bool:
    """Whether a value looks like a password even where words are more likely: `the password is Summer2024!`.

    `words` says whether three words joined by hyphens do.
    """
    if " " in value:
        return False
    if value.count("-") >= 2 and value.islower() and len(value) >= 12 and not any(map(str.isdigit, value)):
        chosen = words
    else:
        chosen = looks_random(value, 5) or (
            len(value) >= 6 and any(map(str.isalpha, value)) and bool(_SIGNS.search(value))
        )
    return chosen and not harmless(value)  # which takes longest


_PARTS = re.compile(r"[A-Za-z0-9]+")
_ONLY_SHOWN = re.compile(r"x{4,}|X{4,}|(?i:your|placeholder|redacted|changeme|insert|replace|example|dummy)")
_SHOWN_WORD = re.compile(rf"(?<![A-Za-z0-9])(?:{_ONLY_SHOWN.pattern})(?![A-Za-z0-9])")


def stands_in(rest: str) -> bool:
    """Whether what follows a vendor's start says that it only stands in for a token: `xxxx`, `EXAMPLE`."""
    if len(set(rest)) < 2:
        return True
    shown = [match.span() for match in _ONLY_SHOWN.finditer(rest)]
    if not shown or len(rest) < _LONG:
        return bool(shown)
    # Such letters turn up by chance in what was drawn by lot: they must make up much of it, or stand as a word of their
    # own, or start or end it.
    if 4 * sum(end - start for start, end in shown) >= len(rest) or _SHOWN_WORD.search(rest):
        return True
    return len(rest) < 64 and (shown[0][0] == 0 or shown[-1][1] >= len(rest) - 3)


def drawn_by_lot(rest: str) -> bool:
    """Whether a part of what follows a vendor's start looks drawn by lot, which `sk-learn-contrib` does not."""
    return any(_drawn(part) for part in _PARTS.findall(rest))


def _drawn(part: str) -> bool:
    if any(map(str.isdigit, part)):
        return len(part) >= 8 or (len(part) >= 4 and not part.isdigit())
    return len(part) >= 7 and _odd_case(part)


def is_count(name: str, value: str, *, number: bool = False) -> bool:
    """Whether a number is a mere count: a short one, or any that fits a counter of tokens."""
    if not value.isdigit() or len(value) > 9:
        return False
    most = 9 if "token" in name.lower() else 6 if name.lower() == "pass" else 3 if number else 0
    return len(value) <= most


_COOKIE = re.compile(r"([^=;\s]{1,128})=([^;]*)")
_SESSION = re.compile(r"sess|sid|auth|token|csrf|xsrf|jwt|login|remember|\bid\b|_id\b", re.IGNORECASE)
_COOKIE_SETTINGS = frozenset(
    "path domain expires max-age samesite secure httponly priority partitioned version comment".split()
)


def cookie_is_secret(value: str) -> bool:
    """Whether one of the cookies in a header names a session or looks random; `theme=dark` does neither."""
    cookies = [(name, text) for name, text in _COOKIE.findall(value) if name.lower() not in _COOKIE_SETTINGS]
    if not cookies:
        return value.isascii() and len(value) >= 3 and "=" not in value and not harmless(value) and not prose(value)
    return any(
        not harmless(text) and (looks_random(text) or bool(_SESSION.search(name) and text)) for name, text in cookies
    )
