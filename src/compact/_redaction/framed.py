"""The frames that give a secret away: data, no machinery.

Owns: commands, headers, SQL, signed addresses and files of passwords, each with the literals without which it cannot
match and the part of it that goes.
Must never: hold a pattern that runs over a line's end, except where a format demands it, or one without a bound.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from .assigned_values import cookie_is_secret, harmless, looks_chosen, looks_random
from .mark import REDACTED

__all__ = ["FRAMES", "Frame"]


def _any(value: str) -> bool:
    return not harmless(value) and not value.isspace()


def _no_number(value: str) -> bool:
    return _any(value) and not value.isdigit()


def _random(value: str) -> bool:
    return looks_random(value, 16) and not harmless(value)


def _credentials(value: str) -> bool:
    return looks_random(value, 8) and not harmless(value)


class Frame(NamedTuple):
    """A pattern with a group `value` (or `bare`), the literals one of which it needs, and what a value must be."""

    literals: tuple[str, ...]
    """In lower case."""
    pattern: str
    is_secret: Callable[[str], bool] = _any


# An argument of a command, quoted or not: the look-behinds tell which quote opened it.
_ARGUMENT = (
    r"\\{0,3}[\"']?(?P<value>(?<=')[^'\n\\]{1,256}|(?<=\")[^\"\n\\]{1,256}"
    # What is gone already still is the argument: otherwise the next flag would be taken for this one.
    rf"|{REDACTED}|[^\s\"'\\|;&<>,\])$-][^\s\"'\\|;&<>,\])]{{0,256}})"
)
_LITERAL = r"\\{0,3}[\"'](?P<value>(?<=')(?:[^'\n\\\"]|''){1,256}|(?<=\")[^\"\n\\]{1,256})"
_MORE = r"[^\n|;]{0,160}?[\s\"']"
_USER = r"[^\s:\"'\\<>]{0,64}:"


def _command(literals: str, command: str, flag: str, is_secret: Callable[[str], bool] = _any) -> Frame:
    """A command and the flag behind which it takes a password."""
    return Frame(tuple(literals.split()), rf"(?:{command})\b{_MORE}{flag}{_ARGUMENT}", is_secret)


FRAMES: tuple[Frame, ...] = (
    # headers
    Frame(
        ("bearer",),
        r"[Bb](?i:earer)(?:[ \t]{1,4}|\\?[\"']?[ ]?[:=][ ]?\\?[\"']?)(?P<value>[A-Za-z0-9._~+/=-]{8,4096})",
        _credentials,
    ),
    Frame(
        ("cookie",),
        r"[Cc](?i:ookie2?):[ \t]{0,4}(?P<value>[^\s=\"'\\;<>]{1,128}=[^\r\n\"'\\]{1,8192})",
        cookie_is_secret,
    ),
    # Without "=" it is a file of cookies to curl, and a branch to git.
    Frame((" -b ", "--cookie"), rf"[ \"'](?:-b|--cookie)[ =]{_ARGUMENT}", lambda v: "=" in v and cookie_is_secret(v)),
    Frame(
        ("response=", "mac=", "oauth_signature=", "passworddigest="),
        r"=(?=[\\\"])(?:(?<=response=)|(?<=cnonce=)|(?<=\bmac=)|(?<=oauth_signature=)|(?<=PasswordDigest=))\\{0,3}\"(?P<value>[A-Za-z0-9+/=%_-]{8,512})",
        _credentials,
    ),
    # commands that take a password without saying so
    # A key may stand for the user, with no password behind it.
    Frame(
        ("curl",),
        r"curl\b(?:[^\s|;\"']{0,256}+(?:[ \t\"']|(?<=\\)\r?\n){1,32}+){1,24}?"
        r"(?:-[a-zA-Z]{0,3}[uU]|--user|--proxy-user)[ =]{0,4}(?:"
        rf"\\{{0,3}}[\"']{_USER}(?P<value>[^\"'\n\\]{{1,256}})"
        rf"|(?:{_USER}\\{{0,3}}[\"']?"
        r"|\\{0,3}[\"']?(?=[^\s:]{0,64}[0-9])(?=[^\s\"':\\]{16,256}:(?:[\"'\s\\]|\Z)))"
        r"(?P<bare>[^\s\"'\\]{1,256}))",
        _no_number,
    ),
    Frame(
        ("--user",),
        rf"--(?:proxy-)?user(?:[ =]|\\?\", ?\\?\")\\{{0,3}}[\"']?{_USER}(?P<value>[^\s\"'\\]{{1,256}})",
        _no_number,
    ),
    _command("mysql mariadb", "mysql[a-z]*|mariadb[a-z-]*", "-p"),
    Frame(
        ("mysql", "mariadb"),
        r"(?:mysql|mariadb)[a-z]{0,16}\\{0,7}[\"'],[^\]]{0,240}?[\"']-p(?P<value>[^\s\"'\\]{1,128})",
        looks_chosen,
    ),
    Frame((" -p",), rf"(?:-u|-U|--user(?:name)?)[ =]?\S{{1,64}} -p(?:[ =]|ass(?:word)?[ =])?{_ARGUMENT}", looks_chosen),
    Frame(
        ("auth=(", "auth(", "authenticate(", "authentication(", "login(", "credential(", "credentials("),
        r"\((?=[ ]?[\"'])(?:(?<=auth=.)|(?<=[Aa]uth.)|(?<=uthenticate.)|(?<=uthentication.)"
        r"|(?<=redential.)|(?<=redentials.)|(?<=\blogin.))[ ]?"
        rf"(?:[\"'][^\n\"'\\]{{1,128}}[\"'],[ ]?){{1,3}}{_LITERAL}(?=[\"'][ ]?\))",
    ),
    Frame(
        ("credentials", "creds"),
        r"[Cc]red(?:ential)?s[ ]{0,4}[=:][ ]{0,4}[(\[][ ]?[\"'][^\n\"'\\]{1,128}[\"'],[ ]?"
        rf"{_LITERAL}(?=[\"'][ ]?[)\]])",
    ),
    Frame(
        ("jwt.", "createhmac(", "hmac.new(", "fernet("),
        r"(?:jwt\.(?:sign|encode|verify|decode)\([^\n\"']{1,80},|createHmac\([\"'][\w-]{2,16}[\"'],|hmac\.new\(|Fernet\()"
        rf"[ ]?b?{_LITERAL}",
        looks_chosen,
    ),
    Frame(
        ("@tcp(", "@unix("),
        r"(?<![\w.-])[\w.-]{1,64}:(?P<value>[^\s\"'`:/]{1,128}?)@(?:tcp|unix)\(",
    ),
    Frame(
        ("password for", "password is generated for", "password generated for"),
        r"[Pp]assword (?:is |was )?(?:generated |set )?for (?:user )?[\"']?[^\s\"':]{1,64}[\"']?: "
        r"(?P<value>[^\s\"'\\<>]{6,128})",
        looks_chosen,
    ),
    Frame(("credentials:",), r"[Cc]redentials?: [^\s/]{1,64} ?/ ?(?P<value>[^\s\"'\\<>]{5,128})", looks_chosen),
    Frame(("useradd", "usermod"), rf"user(?:add|mod)\b{_MORE}(?:-p|--password)[ =]{_ARGUMENT}", looks_chosen),
    Frame(("ssh-keygen",), rf"ssh-keygen\b{_MORE}-[NP][ ]{_ARGUMENT}", looks_chosen),
    Frame(("activate-refresh-token",), r"activate-refresh-token \S{1,64} (?P<value>[^\s\"'\\]{8,512})", looks_chosen),
    Frame(
        ("enable secret", "snmp-server community"),
        r"(?:enable secret(?: [0-9])?|snmp-server community) (?P<value>[^\s\"'\\]{6,128})",
        looks_chosen,
    ),
    Frame(
        ("new pdo(", "mysqli", "getconnection(", "pg_connect("),
        r"(?:new PDO|mysqli(?:_connect)?|getConnection)\([ ]?(?:[\"'][^\n\"']{1,200}[\"']|[$\w.]{1,64}),[ ]?"
        rf"[\"'][^\s\"'\\]{{1,64}}[\"'],[ ]?{_LITERAL}",
    ),
    _command("sshpass", "sshpass", r"-p(?:[ =]|\\?\", ?)?"),
    _command(
        "docker podman helm buildah skopeo", r"(?:docker|podman|helm|buildah|skopeo)\b[^\n|;]{0,40}\blogin", "-p[ =]"
    ),
    _command("redis-cli", "redis-cli", "(?:-a|--pass)[ =]"),
    _command("mongo", "mongo[a-z]*", "-p[ =]?", looks_chosen),
    _command("ldap", "ldap[a-z]+", "-w[ ]", looks_chosen),
    _command(
        "mosquitto_ ipmitool sqlcmd bcp", "mosquitto_pub|mosquitto_sub|ipmitool|sqlcmd|bcp", "-P[ ]", looks_chosen
    ),
    _command("zip", "zip|unzip", "-P[ ]?", looks_chosen),
    Frame(("7z ", "7za ", "7zr ", "7zz "), rf"7z[arz]?[ ]{_MORE}-p{_ARGUMENT}"),
    Frame(("smbclient", "rpcclient"), r"-U[ ]?[\"']?[\w.\\-]{1,64}%(?P<value>[^\s\"']{1,128})"),
    _command("openssl", "openssl", "-(?:k|K|pass)[ ](?!pass:|env:|file:|stdin)"),
    Frame(("pass:",), r"-pass(?:in|out)?[ ]\\{0,3}[\"']?pass:(?P<value>[^\s\"'\\]{1,128})"),
    Frame(
        ("htpasswd",),
        r"\bhtpasswd[ ](?:-[a-zA-Z]{0,8}n[a-zA-Z]{0,8}[ ]|-[a-zA-Z]{0,8}b[a-zA-Z]{0,8}[ ]\S{1,256}[ ])"
        rf"\S{{1,64}}[ ]{_ARGUMENT}",
    ),
    Frame(
        ("rabbitmqctl",), rf"\brabbitmqctl[ ](?:add_user|change_password|authenticate_user)[ ]\S{{1,64}}[ ]{_ARGUMENT}"
    ),
    Frame(("--oauth2-bearer",), rf"--oauth2-bearer[ =]{_ARGUMENT}"),
    Frame((" -a ", "--auth "), rf"\bhttps?[ ](?:-\S{{1,20}}[ ]){{0,3}}(?:-a|--auth)[ ]{_USER}{_ARGUMENT}", _no_number),
    _command("secretsmanager keyvault", "secretsmanager|keyvault", "(?:--secret-string|--value)[ =]", looks_chosen),
    Frame(("secret set",), rf"\bsecret set\b{_MORE}(?:--body|-b|--value)[ =]{_ARGUMENT}", looks_chosen),
    _command("securestring", "ssm", "--value[ =]"),
    Frame(("vault login", "snyk auth"), rf"\b(?:vault login|snyk auth)[ ](?:token=)?(?!-){_ARGUMENT}", _random),
    Frame(("net use",), r"\bnet use[ ][^\n]{1,80}?[ ](?P<value>[^\s\"'\\/:*]{4,64})[ ]/user:"),
    # Oracle: user/password@service
    Frame(
        ("sqlplus", "connect ", "conn ", ":thin:"),
        r"(?:sqlplus(?:[ ]-[a-zA-Z]{1,8}){0,3}[ ]|[Cc](?i:onn(?:ect)?)[ ]|:thin:)[\w$]{1,64}/"
        r"(?P<value>[^\s\"'/@]{3,64})@",
    ),
    Frame(
        ("pwd={", "password={"),
        r"(?i:pwd|password)=\{(?![\w.]{1,64}![rsa])(?P<value>[^{}\n\"']{3,128})\}",
        looks_chosen,
    ),
    # the fallback of a reference
    Frame(
        ("${",),
        r"\$\{[A-Za-z_]?[\w.]{0,64}(?i:pass|pwd|secret|token|key)\w{0,32}:-?(?P<value>[^}\s\"']{6,256})\}",
        looks_chosen,
    ),
    Frame(("<<<",), rf"--(?:with-token|password-stdin)[ ]{{0,2}}<<<[ ]{{0,2}}{_ARGUMENT}"),
    Frame(
        ("-stdin", "chpasswd", "--with-token", "sudo -s"),
        rf"\b(?:echo|printf)[ ](?:-[ne]{{1,2}}[ ]|[\"']?%s(?:\\n)?[\"']?[ ])?{_ARGUMENT}[\"']?[ ]{{0,4}}\|"
        r"[^\n|]{0,80}(?:-stdin|chpasswd|--with-token|sudo -S)",
    ),
    Frame(
        ("net use",),
        rf"\bnet (?:use\b[^\n]{{0,80}}/user:\S{{1,64}}|user[ ]{{1,4}}\S{{1,64}})[ ]{{1,4}}(?!/){_ARGUMENT}",
    ),
    Frame(("wpa_passphrase",), rf"\bwpa_passphrase[ ]{{1,4}}\S{{1,64}}[ ]{{1,4}}{_ARGUMENT}"),
    Frame(("/p:",), r"/u:\S{1,64}[^\n]{0,40} /p:(?P<value>[^\s\"']{1,128})"),
    Frame(("securestring",), rf"[Cc](?i:onvertTo-SecureString)[ ](?:-String[ ])?{_LITERAL}"),
    # SQL
    Frame(
        ("identified",),
        r"[Ii](?i:dentified[ \t]{1,4}(?:with[ \t]{1,4}\S{1,40}[ \t]{1,4})?(?:by|as)[ \t]{1,4}(?:password[ \t]{1,4})?)"
        + _LITERAL,
    ),
    Frame(("identified by",), r"[Ii](?i:dentified by)[ ](?P<value>[^\s\"';,()<>]{3,64})(?=[;\s]|\Z)", looks_chosen),
    Frame(("pragma key", "pragma rekey"), rf"(?i:pragma (?:re)?key)[ ]?=[ ]?{_LITERAL}"),
    Frame(("set password",), rf"[Ss](?i:et password\b[^=\n;]{{0,80}}=[ \t]{{0,4}}(?:password\()?){_LITERAL}"),
    Frame(("password '", 'password "'), rf"[Pp](?i:assword)[ ]{_LITERAL}(?=[\"'][ \t]{{0,4}}(?:[;,)\n]|\Z|[A-Z]))"),
    # the words that restore a wallet
    Frame(
        ("mnemonic", "seed phrase", "seed_phrase", "seedphrase", "recovery phrase", "recovery_phrase"),
        r"(?i:mnemonic|phrase|seed)\w{0,8}[\"']?[ ]?[:=][ ]?\\{0,3}[\"']?(?P<value>[a-z]{3,8}(?: [a-z]{3,8}){11,23})\b",
    ),
    # signatures: whoever knows the whole address may open it
    Frame(("sig=",), r"[?&;]sig=(?P<value>[A-Za-z0-9%+/=_-]{16,512})"),
    Frame(("signature=",), r"[Ss](?i:ignature)=(?P<value>[A-Za-z0-9%+/=_~-]{32,512})", _random),
    Frame(("key=", "code="), r"[?&](?:key|code)=(?P<value>[A-Za-z0-9%+/=_-]{20,256})(?![A-Za-z0-9])", _random),
    # files of passwords: .pgpass, htpasswd and shadow, .netrc
    Frame(
        (":5432:", ":*:", ":3306:", ":1521:"),
        r"(?m:(?:(?<![\w.*/:-])|(?<=[0-9]m))[\w.*-]{1,128}:(?:[0-9]{2,5}|\*):[\w*-]{1,64}:[\w*.-]{1,64}:"
        r"(?P<value>[^\s:\"']{3,128})$)",
    ),
    Frame((":$",), r"(?<![\w.$-])[\w.-]{1,64}:(?P<value>\$(?:apr1|1|2[abxy]|5|6|y|7)\$[^\s:\"'\\]{16,200})"),
    Frame((":{sha}",), r"(?<![\w.$-])[\w.-]{1,64}:(?P<value>\{SHA\}[A-Za-z0-9+/=]{20,40})"),
    Frame(
        ("machine ",),
        r"\bmachine[ \t]{1,4}\S{1,128}\s{1,16}login\s{1,8}\S{1,128}\s{1,16}password\s{1,8}(?P<value>[^\s\"'\\]{1,256})",
    ),
)
