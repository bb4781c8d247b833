"""Whether a value is a secret, by itself and together with its name.

Owns: which values are placeholders, references, code or prose; which look random; `is_secret` for a value whose name
is known for sure (keys of mappings, quoted values, columns of a table).
Must never: look at the text around a name and its value, or remember a value.
"""

from __future__ import annotations

import re
from base64 import b64decode

from .key_names import Strength, is_cookie, split_words, words_as_written

_PLACEHOLDER_WORDS = frozenset(
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
_SECRET_WORDS = frozenset(
    "password passwd passphrase pwd secret secrets token tokens key keys auth credential credentials cookie pass "
    "authorization authentication".split()
)
_STOP_WORDS = frozenset(
    "a an the is are was be been has have of to in on at for from with without and or not no must should can cannot "
    "will may your you my our their his her its this that it at least if when by as "
    "der die das und ist le la les de el los".split()
)
# Looked for behind the name: trying every way to split it would take long.
_ENDS_OF_TYPES = "|".join(
    f"(?<=[A-Za-z0-9]{end})"
    for end in "Key Token Secret Form Credential Credentials Auth Password Provider Config Type Schema Header Model "
    "Policy Bearer".split()
)
_PLACEHOLDER = re.compile(
    r"\s*|[*•.…#?_=-]{2,}|([A-Za-z0-9*])\1{2,}|<[^<>]*>|\[[A-Za-z_. -]*\]"
    # a colour, a version, a number with its unit or format
    r"|#[0-9a-fA-F]{3,8}|[\^~<>=v]{0,2}[0-9]+(?:\.[0-9x*]+){1,12}(?:-[a-z0-9.]+)?"
    r"|[<>^]?0?[0-9]{1,3}(?:\.[0-9]+)?[bcdeEfFgGnosxX%]"
    # a variable, a placeholder of a template, an argument of a statement
    r"|\$\{.*|\$\(.*|\$[A-Za-z_][\w.:]*|\$[0-9]|\{\{?.*\}?\}|%\w+(?:\([^()]*\))?%|[0-]{6,}|%\(\w+\)s|(?:%[-0-9.]*[sdrvqx]\W?){1,4}|:[a-z_]\w*"
    r"|@{1,2}[A-Za-z_./][\w./:-]*@{0,2}|[0-9]?\*[a-z]+"
    # a type, and an object of Kubernetes
    rf"|\*?(?:\w++\.)*+_?[A-Z][A-Za-z]*+(?:[0-9]{{1,5}}+[A-Z][A-Za-z]*+){{0,4}}+(?:{_ENDS_OF_TYPES})"
    r"|_[A-Z][a-z]+[A-Z]?|[a-z]+(?:-[a-z0-9]+)*-(?:tls|secrets?|creds|certs?)"
    r"|#\{.*|!(?:[A-Z]{2,}+(?:_[A-Z]++)*+|[A-Za-z]?[a-z]+(?:[_A-Z][a-z]+)*+)(?:[ .:(\[|].*)?|ENC[\[(].*|\{cipher\}.*"
    # a reference to where the secret is kept
    r"|sha(?:1|256|384|512)[-:][A-Za-z0-9+/=]+|(?:env|file|vault|ssm|op|gcp-secret|secretref|keyvault|awskms|ref|ref\+\w+|arn|keyring|projects)[:/].*"
    r"|(?:process\.env|os\.environ|os\.getenv|System\.getenv|ENV|env|secrets|vars?|data|local|self|this|config|settings)"
    r"[.\[(].*"
    # paths and addresses
    r"|(?:~|\.{1,2})?/[\w.@+-]+(?:/[\w.@+-]*)*|[A-Za-z]:\\.*|[a-z][a-z0-9+.-]*://[^\s@]*"
    r"|[\w./-]+\.(?:pem|key|crt|cer|json|ya?ml|txt|p12|pfx|jks|env|py|js|ts|go|rb|md)"
    # ids that providers of models give out
    r"|(?:call|toolu|resp|msg|run|thread|asst|req|fc|rs|chatcmpl)[_-][A-Za-z0-9_-]+"
    r"|(?i:<?your[_ -]?\w*)",
    re.DOTALL,
)
"""Values that are, as a whole, a placeholder, a reference, a type, a path or an id."""

_TEMPLATE_OR_RULE = re.compile(
    # placeholders of templates, and signs that only regular expressions have
    r"\{\{.*\}\}|\$\{.*\}|<[a-zA-Z][\w -]*>|\{[A-Za-z_][\w.]*(?:![rsa])?(?::[^{}]*)?\}"
    r"|\\[wdsbWDS]|\[\^|\(\?[:=!P]|\][+*]|\.\*"
    # rules that a form checks
    r"|\b(?:required|nullable|confirmed)\||\|(?:min|max):[0-9]",
    re.DOTALL,
)
# Words that only placeholders have; searched in lower case, which is faster than ignoring case.
_PLACEHOLDER_PART = re.compile(
    r"\b(?:your|my|the|some|an?)[_ -].*(?:key|token|secret|password|passwd|pass|id|here|value|name)\b"
    r"|(?:your|insert|replace|enter|change|put|add)[_ -]?(?:your|me|this|it|here|with|the|a)?[_ -]"
    r"|placeholder|changeme|change_me|redacted|x{4,}|\*{4,}|[_-]here|goes[_ -]here|dummy|example|not[_-]a[_-]real"
    r"|([a-z0-9])\1{9,}",
    re.DOTALL,
)
_CUT_OFF = re.compile(r"(?:\.{3}|…|\[\.{3}\]).*\Z", re.DOTALL)
_IDENTIFIER = re.compile(r"[A-Za-z_][\w.:-]*")
_LONGEST_PLACEHOLDER = 512
_LONG_VALUE = 24
_PUBLIC = (
    "ssh-rsa AAAA",
    "ssh-ed25519 AAAA",
    "ssh-dss AAAA",
    "ecdsa-sha2-",
    "sk-ssh-",
    "-----BEGIN CERT",
    "-----BEGIN PUB",
)
_NAME_ENDINGS = ("TOKEN", "KEY", "SECRET", "PASSWORD")
_TURNS = re.compile(r"[a-z][A-Z0-9]|[A-Z][0-9]|[0-9][A-Za-z]")


def is_harmless(value: str) -> bool:
    """Whether a value is not a secret under any name: a placeholder, a reference, a type, a path, an id."""
    if value.startswith(_PUBLIC):
        return True
    if len(value) > _LONGEST_PLACEHOLDER:
        return False
    head = _CUT_OFF.sub("", value) if "..." in value or "…" in value else value
    if head != value:
        # The start that every JWT has is not a secret.
        return not looks_random(head) or (head.startswith("eyJ") and len(head) < 20) or is_harmless(head)
    if value.lower().rstrip("=: ") in _PLACEHOLDER_WORDS or (_PLACEHOLDER.fullmatch(value) and not _is_base64(value)):
        return True
    if not value.isalnum() and _TEMPLATE_OR_RULE.search(value):
        return True
    part = _PLACEHOLDER_PART.search(value.lower())
    if part and value.isalnum() and len(value) >= _LONG_VALUE and any(map(str.isdigit, value)):
        # Four letters of a word occur by chance in a random value.
        return 4 * len(part[0]) >= len(value) or is_placeholder(value)
    return bool(part) or _is_name(value)


def _is_base64(value: str) -> bool:
    """Whether a value that could be a path is base64 that starts with a slash."""
    if value[0:1] != "/" or "." in value or "-" in value or len(value) < 16:
        return False
    return any(len(part) >= 8 and len(_TURNS.findall(part)) >= 5 for part in value.split("/"))


def _is_name(value: str) -> bool:
    """Whether a value is a name such as `DB_PASSWORD`, `user-token` or `accessToken2`: words, and few digits."""
    if value.isupper() and value.isalpha() and value.endswith(_NAME_ENDINGS):
        return True
    if not _IDENTIFIER.fullmatch(value) or sum(map(str.isdigit, value)) > 4:
        return False
    words = split_words(value)
    if value.isalnum() and not value.isupper() and not value.isalpha() and not _has_word_as_in_name(value):
        return False
    if _SECRET_WORDS.isdisjoint(words) or len(_TURNS.findall(value)) > 5:
        return False
    return sum(len(word) < 2 for word in words) < 2


def _has_word_as_in_name(value: str) -> bool:
    """Whether a word such as `token` is joined as in a name: `accessToken2`, and not `NqBetKEY1Tja`."""
    return any(word.lower() in _SECRET_WORDS and not word.isupper() for word in words_as_written(value))


def is_prose(value: str) -> bool:
    """Whether a value reads like prose: a label, a message, a translation."""
    words = value.split()
    if not words or (len(words) < 4 and any(map(str.isdigit, value))):
        return False
    plain = [word.strip(".,:;!?()'\"*`…-") for word in words]
    if len(words) == 1:
        return plain[0].isalpha() and ((words[0].istitle() and len(words[0]) > 3) or not words[0].isascii())
    low = {word.lower() for word in plain}
    if not low.isdisjoint(_STOP_WORDS) or not low.isdisjoint(_SECRET_WORDS):
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
    """Whether a value mixes letters and digits, or cases, as tokens do, and words, numbers and dates do not."""
    if len(value) < least:
        return False
    digits, letters = any(map(str.isdigit, value)), any(map(str.isalpha, value))
    if digits and letters:
        return not _COUNTED.fullmatch(value)
    if letters:
        return _has_odd_case(value)
    return sum(map(str.isdigit, value)) >= 12 and len(set(value)) > 4


def _has_odd_case(value: str) -> bool:
    """Whether upper and lower case are mixed as in no style of joining words."""
    if value.islower() or value.isupper():
        return False
    return any(part and not _JOINED_WORDS.fullmatch(part) for part in _BETWEEN_WORDS.split(value))


_PASSWORD_SIGNS = re.compile(r"[!@#$%^*+~=]")


def looks_like_password(value: str, *, words: bool = True) -> bool:
    """Whether a value looks like a password even where words are more likely: `the password is Summer2024!`.

    `words` decides whether three words joined by hyphens do.
    """
    if " " in value:
        return False
    if value.count("-") >= 2 and value.islower() and len(value) >= 12 and not any(map(str.isdigit, value)):
        chosen = words
    else:
        chosen = looks_random(value, 5) or (
            len(value) >= 6 and any(map(str.isalpha, value)) and bool(_PASSWORD_SIGNS.search(value))
        )
    return chosen and not is_harmless(value)  # last, because it takes longest


_ALNUM_PARTS = re.compile(r"[A-Za-z0-9]+")
_EXAMPLE = re.compile(r"x{4,}|X{4,}|(?i:your|placeholder|redacted|changeme|insert|replace|example|dummy)")
_EXAMPLE_WORD = re.compile(rf"(?<![A-Za-z0-9])(?:{_EXAMPLE.pattern})(?![A-Za-z0-9])")


def is_placeholder(rest: str) -> bool:
    """Whether the text behind a vendor's prefix shows that it is not a real token: `xxxx`, `EXAMPLE`."""
    if len(set(rest)) < 2:
        return True
    examples = [match.span() for match in _EXAMPLE.finditer(rest)]
    if not examples or len(rest) < _LONG_VALUE:
        return bool(examples)
    # Such letters occur by chance in a random value: they must make up much of it, be a separate word, or start or end
    # it.
    if 4 * sum(end - start for start, end in examples) >= len(rest) or _EXAMPLE_WORD.search(rest):
        return True
    return len(rest) < 64 and (examples[0][0] == 0 or examples[-1][1] >= len(rest) - 3)


def has_random_part(rest: str) -> bool:
    """Whether a part of the text behind a vendor's prefix looks random, which is not so in `sk-learn-contrib`."""
    return any(_looks_random_part(part) for part in _ALNUM_PARTS.findall(rest))


def _looks_random_part(part: str) -> bool:
    if any(map(str.isdigit, part)):
        return len(part) >= 8 or (len(part) >= 4 and not part.isdigit())
    return len(part) >= 7 and _has_odd_case(part)


def is_count(name: str, value: str, *, number: bool = False) -> bool:
    """Whether a number is a count: a short one, or one of at most nine digits under a name with `token`."""
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
    """Whether one of the cookies in a header names a session or looks random, unlike `theme=dark`."""
    cookies = [(name, text) for name, text in _COOKIE.findall(value) if name.lower() not in _COOKIE_SETTINGS]
    if not cookies:
        return (
            value.isascii() and len(value) >= 3 and "=" not in value and not is_harmless(value) and not is_prose(value)
        )
    return any(
        not is_harmless(text) and (looks_random(text) or bool(_SESSION.search(name) and text)) for name, text in cookies
    )


SCHEME = re.compile(r"(?:bearer|basic|token|apikey|api-key|digest|negotiate|splunk|ssws|key)[ \t]+", re.IGNORECASE)
"""The scheme before credentials, which is kept."""

_BASE64_TEXT = re.compile(r"[A-Za-z0-9+/]{8,256}={0,2}")
_FINGERPRINT = re.compile(r"[0-9A-F]{40}")
"""The fingerprint of a public key, as PGP writes it."""
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


def is_secret(name: str, value: str, strength: Strength) -> bool:
    """Whether a text that is, for sure and as a whole, the value of a name is a secret."""
    if is_cookie(name):
        return cookie_is_secret(value)
    rest = value[end_of_scheme(value) :]
    if strength is Strength.LONE and rest.strip().isalpha() and not looks_random(rest.strip()):
        return False
    if strength <= Strength.WEAK and not _is_basic_credentials(rest) and not _is_random_key(name, rest):
        return False
    # The slow checks come last.
    return not (
        is_count(name, rest) or (is_prose(rest) and not (name[:1] == "-" and " " not in rest)) or is_harmless(rest)
    )


def _is_random_key(name: str, value: str) -> bool:
    """Whether a value looks random, and is not a UUID or a fingerprint."""
    if name.lower().endswith(("gpg_key", "pgp_key")) and _FINGERPRINT.fullmatch(value):
        return False
    return looks_random(value, 16) and any(map(str.isdigit, value)) and not _UUID.fullmatch(value)


def _is_basic_credentials(value: str) -> bool:
    """Whether a value is `user:password` in base64, as in `"auth": "…"` of a container registry."""
    if len(value) < 8 or not _BASE64_TEXT.fullmatch(value):
        return False
    try:
        plain = b64decode(value + "=" * (-len(value) % 4), validate=True).decode("ascii")
    except ValueError:
        return False
    return ":" in plain and plain.isprintable()


def end_of_scheme(value: str) -> int:
    """Where the credentials start behind a scheme such as `Bearer`."""
    scheme = SCHEME.match(value) if " " in value or "\t" in value else None
    return scheme.end() if scheme else 0
