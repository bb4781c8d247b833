"""Secrets known by the text around them: URLs, headers, cookies, commands, SQL and password files.

Owns: the table of frames, each with the literals without which it cannot match; passwords in URLs; Kubernetes Secrets;
values of SQL's `INSERT` in columns such as `password`.
Must never: hold a pattern without a bound, run a frame whose literals do not occur in the text, or change an `INSERT`
row that does not have as many fields as there are columns.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

from .assigned_values import cookie_is_secret, is_harmless, is_secret, looks_like_password, looks_random
from .key_names import name_strength
from .prefilter import Literals
from .spans import REDACTED, SecretSpan, end_of_value, replace_spans


def _is_value(value: str) -> bool:
    return not is_harmless(value) and not value.isspace()


def _is_not_number(value: str) -> bool:
    return _is_value(value) and not value.isdigit()


def _is_random(value: str) -> bool:
    return looks_random(value, 16) and not is_harmless(value)


def _is_credentials(value: str) -> bool:
    return looks_random(value, 8) and not is_harmless(value)


class SecretFrame(NamedTuple):
    """A pattern with a group `value` (or `bare`), the literals one of which it needs, and the check of its value."""

    literals: tuple[str, ...]
    """In lower case."""
    pattern: str
    is_secret: Callable[[str], bool] = _is_value


# An argument of a command, quoted or not: the look-behinds show which quote opened it.
_ARGUMENT = (
    r"\\{0,3}[\"']?(?P<value>(?<=')[^'\n\\]{1,256}|(?<=\")[^\"\n\\]{1,256}"
    # A redacted argument is still the argument: otherwise the next flag would be read as this one.
    rf"|{REDACTED}|[^\s\"'\\|;&<>,\])$-][^\s\"'\\|;&<>,\])]{{0,256}})"
)
_LITERAL = r"\\{0,3}[\"'](?P<value>(?<=')(?:[^'\n\\\"]|''){1,256}|(?<=\")[^\"\n\\]{1,256})"
_MORE = r"[^\n|;]{0,160}?[\s\"']"
_USER = r"[^\s:\"'\\<>]{0,64}:"


def _command_frame(literals: str, command: str, flag: str, is_secret: Callable[[str], bool] = _is_value) -> SecretFrame:
    """A command and the flag behind which it takes a password."""
    return SecretFrame(tuple(literals.split()), rf"(?:{command})\b{_MORE}{flag}{_ARGUMENT}", is_secret)


FRAMES: tuple[SecretFrame, ...] = (
    # headers
    SecretFrame(
        ("bearer",),
        r"[Bb](?i:earer)(?:[ \t]{1,4}|\\?[\"']?[ ]?[:=][ ]?\\?[\"']?)(?P<value>[A-Za-z0-9._~+/=-]{8,4096})",
        _is_credentials,
    ),
    SecretFrame(
        ("cookie",),
        r"[Cc](?i:ookie2?):[ \t]{0,4}(?P<value>[^\s=\"'\\;<>]{1,128}=[^\r\n\"'\\]{1,8192})",
        cookie_is_secret,
    ),
    # Without "=" it is a file of cookies to curl, and a branch to git.
    SecretFrame(
        (" -b ", "--cookie"), rf"[ \"'](?:-b|--cookie)[ =]{_ARGUMENT}", lambda v: "=" in v and cookie_is_secret(v)
    ),
    SecretFrame(
        ("response=", "mac=", "oauth_signature=", "passworddigest="),
        r"=(?=[\\\"])(?:(?<=response=)|(?<=cnonce=)|(?<=\bmac=)|(?<=oauth_signature=)|(?<=PasswordDigest=))\\{0,3}\"(?P<value>[A-Za-z0-9+/=%_-]{8,512})",
        _is_credentials,
    ),
    # commands that take a password without naming it
    # A key may take the place of the user, without a password.
    SecretFrame(
        ("curl",),
        r"curl\b(?:[^\s|;\"']{0,256}+(?:[ \t\"']|(?<=\\)\r?\n){1,32}+){1,24}?"
        r"(?:-[a-zA-Z]{0,3}[uU]|--user|--proxy-user)[ =]{0,4}(?:"
        rf"\\{{0,3}}[\"']{_USER}(?P<value>[^\"'\n\\]{{1,256}})"
        rf"|(?:{_USER}\\{{0,3}}[\"']?"
        r"|\\{0,3}[\"']?(?=[^\s:]{0,64}[0-9])(?=[^\s\"':\\]{16,256}:(?:[\"'\s\\]|\Z)))"
        r"(?P<bare>[^\s\"'\\]{1,256}))",
        _is_not_number,
    ),
    SecretFrame(
        ("--user",),
        rf"--(?:proxy-)?user(?:[ =]|\\?\", ?\\?\")\\{{0,3}}[\"']?{_USER}(?P<value>[^\s\"'\\]{{1,256}})",
        _is_not_number,
    ),
    _command_frame("mysql mariadb", "mysql[a-z]*|mariadb[a-z-]*", "-p"),
    SecretFrame(
        ("mysql", "mariadb"),
        r"(?:mysql|mariadb)[a-z]{0,16}\\{0,7}[\"'],[^\]]{0,240}?[\"']-p(?P<value>[^\s\"'\\]{1,128})",
        looks_like_password,
    ),
    SecretFrame(
        (" -p",),
        rf"(?:-u|-U|--user(?:name)?)[ =]?\S{{1,64}} -p(?:[ =]|ass(?:word)?[ =])?{_ARGUMENT}",
        looks_like_password,
    ),
    SecretFrame(
        ("auth=(", "auth(", "authenticate(", "authentication(", "login(", "credential(", "credentials("),
        r"\((?=[ ]?[\"'])(?:(?<=auth=.)|(?<=[Aa]uth.)|(?<=uthenticate.)|(?<=uthentication.)"
        r"|(?<=redential.)|(?<=redentials.)|(?<=\blogin.))[ ]?"
        rf"(?:[\"'][^\n\"'\\]{{1,128}}[\"'],[ ]?){{1,3}}{_LITERAL}(?=[\"'][ ]?\))",
    ),
    SecretFrame(
        ("credentials", "creds"),
        r"[Cc]red(?:ential)?s[ ]{0,4}[=:][ ]{0,4}[(\[][ ]?[\"'][^\n\"'\\]{1,128}[\"'],[ ]?"
        rf"{_LITERAL}(?=[\"'][ ]?[)\]])",
    ),
    SecretFrame(
        ("jwt.", "createhmac(", "hmac.new(", "fernet("),
        r"(?:jwt\.(?:sign|encode|verify|decode)\([^\n\"']{1,80},|createHmac\([\"'][\w-]{2,16}[\"'],|hmac\.new\(|Fernet\()"
        rf"[ ]?b?{_LITERAL}",
        looks_like_password,
    ),
    SecretFrame(
        ("@tcp(", "@unix("),
        r"(?<![\w.-])[\w.-]{1,64}:(?P<value>[^\s\"'`:/]{1,128}?)@(?:tcp|unix)\(",
    ),
    SecretFrame(
        ("password for", "password is generated for", "password generated for"),
        r"[Pp]assword (?:is |was )?(?:generated |set )?for (?:user )?[\"']?[^\s\"':]{1,64}[\"']?: "
        r"(?P<value>[^\s\"'\\<>]{6,128})",
        looks_like_password,
    ),
    SecretFrame(
        ("credentials:",), r"[Cc]redentials?: [^\s/]{1,64} ?/ ?(?P<value>[^\s\"'\\<>]{5,128})", looks_like_password
    ),
    SecretFrame(
        ("useradd", "usermod"), rf"user(?:add|mod)\b{_MORE}(?:-p|--password)[ =]{_ARGUMENT}", looks_like_password
    ),
    SecretFrame(("ssh-keygen",), rf"ssh-keygen\b{_MORE}-[NP][ ]{_ARGUMENT}", looks_like_password),
    SecretFrame(
        ("activate-refresh-token",),
        r"activate-refresh-token \S{1,64} (?P<value>[^\s\"'\\]{8,512})",
        looks_like_password,
    ),
    SecretFrame(
        ("enable secret", "snmp-server community"),
        r"(?:enable secret(?: [0-9])?|snmp-server community) (?P<value>[^\s\"'\\]{6,128})",
        looks_like_password,
    ),
    SecretFrame(
        ("new pdo(", "mysqli", "getconnection(", "pg_connect("),
        r"(?:new PDO|mysqli(?:_connect)?|getConnection)\([ ]?(?:[\"'][^\n\"']{1,200}[\"']|[$\w.]{1,64}),[ ]?"
        rf"[\"'][^\s\"'\\]{{1,64}}[\"'],[ ]?{_LITERAL}",
    ),
    _command_frame("sshpass", "sshpass", r"-p(?:[ =]|\\?\", ?)?"),
    _command_frame(
        "docker podman helm buildah skopeo", r"(?:docker|podman|helm|buildah|skopeo)\b[^\n|;]{0,40}\blogin", "-p[ =]"
    ),
    _command_frame("redis-cli", "redis-cli", "(?:-a|--pass)[ =]"),
    _command_frame("mongo", "mongo[a-z]*", "-p[ =]?", looks_like_password),
    _command_frame("ldap", "ldap[a-z]+", "-w[ ]", looks_like_password),
    _command_frame(
        "mosquitto_ ipmitool sqlcmd bcp",
        "mosquitto_pub|mosquitto_sub|ipmitool|sqlcmd|bcp",
        "-P[ ]",
        looks_like_password,
    ),
    _command_frame("zip", "zip|unzip", "-P[ ]?", looks_like_password),
    SecretFrame(("7z ", "7za ", "7zr ", "7zz "), rf"7z[arz]?[ ]{_MORE}-p{_ARGUMENT}"),
    SecretFrame(("smbclient", "rpcclient"), r"-U[ ]?[\"']?[\w.\\-]{1,64}%(?P<value>[^\s\"']{1,128})"),
    _command_frame("openssl", "openssl", "-(?:k|K|pass)[ ](?!pass:|env:|file:|stdin)"),
    SecretFrame(("pass:",), r"-pass(?:in|out)?[ ]\\{0,3}[\"']?pass:(?P<value>[^\s\"'\\]{1,128})"),
    SecretFrame(
        ("htpasswd",),
        r"\bhtpasswd[ ](?:-[a-zA-Z]{0,8}n[a-zA-Z]{0,8}[ ]|-[a-zA-Z]{0,8}b[a-zA-Z]{0,8}[ ]\S{1,256}[ ])"
        rf"\S{{1,64}}[ ]{_ARGUMENT}",
    ),
    SecretFrame(
        ("rabbitmqctl",), rf"\brabbitmqctl[ ](?:add_user|change_password|authenticate_user)[ ]\S{{1,64}}[ ]{_ARGUMENT}"
    ),
    SecretFrame(("--oauth2-bearer",), rf"--oauth2-bearer[ =]{_ARGUMENT}"),
    SecretFrame(
        (" -a ", "--auth "), rf"\bhttps?[ ](?:-\S{{1,20}}[ ]){{0,3}}(?:-a|--auth)[ ]{_USER}{_ARGUMENT}", _is_not_number
    ),
    _command_frame(
        "secretsmanager keyvault", "secretsmanager|keyvault", "(?:--secret-string|--value)[ =]", looks_like_password
    ),
    SecretFrame(("secret set",), rf"\bsecret set\b{_MORE}(?:--body|-b|--value)[ =]{_ARGUMENT}", looks_like_password),
    _command_frame("securestring", "ssm", "--value[ =]"),
    SecretFrame(
        ("vault login", "snyk auth"), rf"\b(?:vault login|snyk auth)[ ](?:token=)?(?!-){_ARGUMENT}", _is_random
    ),
    SecretFrame(("net use",), r"\bnet use[ ][^\n]{1,80}?[ ](?P<value>[^\s\"'\\/:*]{4,64})[ ]/user:"),
    # Oracle: user/password@service
    SecretFrame(
        ("sqlplus", "connect ", "conn ", ":thin:"),
        r"(?:sqlplus(?:[ ]-[a-zA-Z]{1,8}){0,3}[ ]|[Cc](?i:onn(?:ect)?)[ ]|:thin:)[\w$]{1,64}/"
        r"(?P<value>[^\s\"'/@]{3,64})@",
    ),
    SecretFrame(
        ("pwd={", "password={"),
        r"(?i:pwd|password)=\{(?![\w.]{1,64}![rsa])(?P<value>[^{}\n\"']{3,128})\}",
        looks_like_password,
    ),
    # the fallback of a reference
    SecretFrame(
        ("${",),
        r"\$\{[A-Za-z_]?[\w.]{0,64}(?i:pass|pwd|secret|token|key)\w{0,32}:-?(?P<value>[^}\s\"']{6,256})\}",
        looks_like_password,
    ),
    SecretFrame(("<<<",), rf"--(?:with-token|password-stdin)[ ]{{0,2}}<<<[ ]{{0,2}}{_ARGUMENT}"),
    SecretFrame(
        ("-stdin", "chpasswd", "--with-token", "sudo -s"),
        rf"\b(?:echo|printf)[ ](?:-[ne]{{1,2}}[ ]|[\"']?%s(?:\\n)?[\"']?[ ])?{_ARGUMENT}[\"']?[ ]{{0,4}}\|"
        r"[^\n|]{0,80}(?:-stdin|chpasswd|--with-token|sudo -S)",
    ),
    SecretFrame(
        ("net use",),
        rf"\bnet (?:use\b[^\n]{{0,80}}/user:\S{{1,64}}|user[ ]{{1,4}}\S{{1,64}})[ ]{{1,4}}(?!/){_ARGUMENT}",
    ),
    SecretFrame(("wpa_passphrase",), rf"\bwpa_passphrase[ ]{{1,4}}\S{{1,64}}[ ]{{1,4}}{_ARGUMENT}"),
    SecretFrame(("/p:",), r"/u:\S{1,64}[^\n]{0,40} /p:(?P<value>[^\s\"']{1,128})"),
    SecretFrame(("securestring",), rf"[Cc](?i:onvertTo-SecureString)[ ](?:-String[ ])?{_LITERAL}"),
    # SQL
    SecretFrame(
        ("identified",),
        r"[Ii](?i:dentified[ \t]{1,4}(?:with[ \t]{1,4}\S{1,40}[ \t]{1,4})?(?:by|as)[ \t]{1,4}(?:password[ \t]{1,4})?)"
        + _LITERAL,
    ),
    SecretFrame(
        ("identified by",), r"[Ii](?i:dentified by)[ ](?P<value>[^\s\"';,()<>]{3,64})(?=[;\s]|\Z)", looks_like_password
    ),
    SecretFrame(("pragma key", "pragma rekey"), rf"(?i:pragma (?:re)?key)[ ]?=[ ]?{_LITERAL}"),
    SecretFrame(("set password",), rf"[Ss](?i:et password\b[^=\n;]{{0,80}}=[ \t]{{0,4}}(?:password\()?){_LITERAL}"),
    SecretFrame(
        ("password '", 'password "'), rf"[Pp](?i:assword)[ ]{_LITERAL}(?=[\"'][ \t]{{0,4}}(?:[;,)\n]|\Z|[A-Z]))"
    ),
    # the words that restore a wallet
    SecretFrame(
        ("mnemonic", "seed phrase", "seed_phrase", "seedphrase", "recovery phrase", "recovery_phrase"),
        r"(?i:mnemonic|phrase|seed)\w{0,8}[\"']?[ ]?[:=][ ]?\\{0,3}[\"']?(?P<value>[a-z]{3,8}(?: [a-z]{3,8}){11,23})\b",
    ),
    # signed URLs
    SecretFrame(("sig=",), r"[?&;]sig=(?P<value>[A-Za-z0-9%+/=_-]{16,512})"),
    SecretFrame(("signature=",), r"[Ss](?i:ignature)=(?P<value>[A-Za-z0-9%+/=_~-]{32,512})", _is_random),
    SecretFrame(("key=", "code="), r"[?&](?:key|code)=(?P<value>[A-Za-z0-9%+/=_-]{20,256})(?![A-Za-z0-9])", _is_random),
    # password files: .pgpass, htpasswd and shadow, .netrc
    SecretFrame(
        (":5432:", ":*:", ":3306:", ":1521:"),
        r"(?m:(?:(?<![\w.*/:-])|(?<=[0-9]m))[\w.*-]{1,128}:(?:[0-9]{2,5}|\*):[\w*-]{1,64}:[\w*.-]{1,64}:"
        r"(?P<value>[^\s:\"']{3,128})$)",
    ),
    SecretFrame((":$",), r"(?<![\w.$-])[\w.-]{1,64}:(?P<value>\$(?:apr1|1|2[abxy]|5|6|y|7)\$[^\s:\"'\\]{16,200})"),
    SecretFrame((":{sha}",), r"(?<![\w.$-])[\w.-]{1,64}:(?P<value>\{SHA\}[A-Za-z0-9+/=]{20,40})"),
    SecretFrame(
        ("machine ",),
        r"\bmachine[ \t]{1,4}\S{1,128}\s{1,16}login\s{1,8}\S{1,128}\s{1,16}password\s{1,8}(?P<value>[^\s\"'\\]{1,256})",
    ),
)

_URL = re.compile(
    r"://(?:(?P<user>[^\s/?#@:\"'<>\\]{0,256}):(?P<value>[^\s/\"'<>\\]{1,8192})|(?P<lone>[A-Za-z0-9_.~-]{20,8192}))@"
)
# A password may hold a slash; then only the scheme of a database separates it from a port and a path.
_DATABASE_URL = re.compile(
    r"(?:postgres(?:ql)?|mysql|mariadb|mongodb|redis|rediss|amqps?|mssql|oracle|clickhouse)(?:\+[a-z0-9]{1,16})?"
    r"://(?P<user>[^\s/?#@:\"'<>\\]{0,64}):(?P<value>[^\s\"'<>\\@]{1,256})@(?=[\w.-]{1,128}[:/?\s]|[\w.-]{1,128}\Z)"
)
# Every value under `data` of a Kubernetes Secret is a secret.
_MANIFEST = re.compile(
    r"(?P<before>kind:[ \t]{0,4}Secret\b(?:(?!\n---)[^\n]{0,400}\n){1,40}?"
    r"(?P<indent>[ \t]{0,16})(?:data|stringData):[ \t]{0,4}\n)"
    r"(?P<block>(?:(?P=indent)[ \t]{1,16}[^\n]{0,8192}(?:\n|\Z)){1,200})"
)
_MANIFEST_ENTRY = re.compile(
    r"(?m:^(?P<before>[ \t]{1,32}[\w.-]{1,128}:[ \t]{1,8}[\"']?)(?P<value>[^\s\"'|>{$][^\s\"']{0,8192}))"
)


def redact_framed(text: str) -> str:
    """The text with passwords in URLs, values in frames, Kubernetes Secrets and SQL's inserted values replaced."""
    lowered = text.lower()
    if "://" in text and "@" in text:
        text = _DATABASE_URL.sub(_redact_url, _URL.sub(_redact_url, text))
    present = frozenset(_literals().find_in(lowered))
    for number, frame in enumerate(FRAMES if present else ()):
        if not present.isdisjoint(frame.literals):
            text = _redact_frame(text, _frame_pattern(number), frame.is_secret)
    if "kind:" in lowered and "secret" in lowered:
        text = _MANIFEST.sub(_redact_manifest, text)
    if "nsert" in text or "NSERT" in text:
        text = _INSERT.sub(_redact_rows, text)
    return text


@cache
def _literals() -> Literals:
    return Literals(literal for frame in FRAMES for literal in frame.literals)


@cache
def _frame_pattern(number: int) -> re.Pattern[str]:
    return re.compile(FRAMES[number].pattern)


def _redact_frame(text: str, pattern: re.Pattern[str], is_secret: Callable[[str], bool]) -> str:
    spans: list[SecretSpan] = []
    done = 0
    for match in pattern.finditer(text):
        start, end = match.span("value" if match["value"] is not None else "bare")
        if start >= done and is_secret(text[start:end]):
            done = end_of_value(text, start, end)
            spans.append(SecretSpan(start, done))
    return replace_spans(text, spans)


def _redact_url(match: re.Match[str]) -> str:
    """`scheme://user:password@host`, or a long random user name, which serves as a password."""
    before, value = match[0].partition("://")[0], match["value"]
    if value is None:
        return f"{before}://{REDACTED}@" if looks_random(match["lone"], 20) else match[0]
    return match[0] if is_harmless(value) or value == match["user"] else f"{before}://{REDACTED}@"


def _redact_manifest(match: re.Match[str]) -> str:
    def entry(line: re.Match[str]) -> str:
        return line[0] if is_harmless(line["value"]) else line["before"] + REDACTED

    return match["before"] + _MANIFEST_ENTRY.sub(entry, match["block"])


_FIELD = r"\s*+(?:'(?:[^'\n\\]|''|\\.)*+'|\"[^\"\n]*+\"|[^'\"(),]++(?:\([^()]{0,64}\))?)\s*+"
_ROW = rf"\({_FIELD}(?:,{_FIELD}){{0,63}}+\)"
_INSERT = re.compile(
    r"(?i:\binsert[ \t]+into[ \t]+[^\s(]{1,128})\s{0,8}\((?P<names>[^()]{1,512})\)\s{0,8}(?i:values)\s{0,8}"
    rf"(?P<rows>{_ROW}(?:\s{{0,8}},\s{{0,8}}{_ROW}){{0,256}}+)"
)
_QUOTED = re.compile(r"'((?:[^'\n\\]|''|\\.)++)'|\"([^\"\n]++)\"")
_ROWS, _FIELDS = re.compile(_ROW), re.compile(_FIELD)


def _redact_rows(match: re.Match[str]) -> str:
    """An `INSERT` without the values of columns such as `password`."""
    names = [name.strip(' \t\n`"[]') for name in match["names"].split(",")]
    if not any(map(name_strength, names)):
        return match[0]
    start = match.start("rows") - match.start()
    return match[0][:start] + _ROWS.sub(lambda row: _redact_row(row, names), match["rows"])


def _redact_row(row: re.Match[str], names: list[str]) -> str:
    inner = row[0][1:-1]
    fields = list(_FIELDS.finditer(inner))
    if len(fields) != len(names):
        return row[0]
    for name, field in reversed(list(zip(names, fields, strict=True))):
        quoted = _QUOTED.search(inner, field.start(), field.end())
        if quoted and name_strength(name) and is_secret(name, quoted[1] or quoted[2], name_strength(name)):
            start, end = quoted.span(1 if quoted[1] is not None else 2)
            inner = inner[:start] + REDACTED + inner[end:]
    return f"({inner})"
