"""Names that announce a secret, such as `api_key`.

Owns: how strongly a name announces a secret, in any case style, with its prefixes and suffixes.
Must never: look at values.

A name is read as words (`DB_PASSWORD`, `dbPassword`, `spring.datasource.password`). Its last word decides, apart from
words that only number or qualify it (`_prod`, `_2`). So `token_count`, `password_hash` and `secretName` announce none.
"""

from __future__ import annotations

import re
from enum import IntEnum
from functools import lru_cache

NAME_LITERALS = tuple(
    "pass pwd psw pword pw secret token auth cookie cred key psk jwt sess salt _pat kennwort wachtwoord "
    "senha contrase парол 密码".split()
)
"""Every name that announces a secret holds one of these, in lower case."""

_WORD_IN_NAME = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+|[^\W\d_a-zA-Z]+")


class Strength(IntEnum):
    """How strongly a name announces that its value is a secret."""

    NOTHING = 0
    WEAK = 1
    """Only a value that looks random is a secret."""
    LONE = 2
    """Such as `token` alone, which prose uses too: a plain word is not a secret."""
    STRONG = 3
    """Anything but a placeholder, a reference or code is a secret."""
    PASS = 4
    """A person chose the value: it may be short."""


_QUALIFIERS = frozenset(
    "value val base prod production live dev development test testing staging stage qa old new current previous b64 "
    "base64 str plain plaintext raw default primary secondary main backup temp tmp confirmation confirm again repeat "
    "verify first second one two a b env override encoded decoded bytes hex admin root db database app master postgres "
    "mysql redis smtp ftp ssh ldap mail email local remote us eu v set".split()
)
"""Words behind the deciding one that only qualify it."""

_PASSWORDS = tuple(
    "password passwd pswd passwrd pword wachtwoord passphrase passwort kennwort passcode pwd senha contrasena пароль "
    "密码".split()
)
_WHOLE_PASSWORDS = frozenset(
    "pass pw psk psw userpass dbpass sshpass rootpass adminpass keypass storepass bindpw rootpw "
    "mypass smtppass mailpass ftppass requirepass masterauth passkey".split()
)
_PARTS_OF_PASSWORDS = frozenset("word code phrase".split())
_SECRETS = tuple(
    "secret token apikey accesskey secretkey privatekey authkey sharedkey accountkey credential cookie masterkey "
    "signingkey encryptionkey appkey clientkey licensekey servicekey".split()
)
_WHOLE_SECRETS = frozenset("pat bearer credentials creds cred authorization authentication".split())
_WEAK = frozenset("auth jwt salt pepper sessionid phpsessid jsessionid".split())
_KINDS_OF_KEY = frozenset(
    "api access private secret auth account signing sign encryption encrypt decryption crypto cipher master app "
    "application shared service license subscription admin root client consumer deploy webhook hmac aes des "
    "jwt session server ingest ingestion integration instrumentation function functions routing ssh rsa tls ssl host "
    "developer dev user merchant project sdk write read bot age seed recovery management query search insert "
    "restricted personal org unseal preshared priv signature cookie fcm push".split()
)
_VENDORS = frozenset(
    "adafruit adobe airtable alchemy algolia alibaba amplitude anthropic asana atlassian aws azure beamer bitbucket "
    "bittrex buildkite circleci clickup cloudflare codecov cohere coinbase confluent contentful datadog dd deepgram "
    "deepl deepseek digitalocean discord docker doppler dropbox elastic etherscan etsy facebook fastly figma finnhub "
    "firebase flickr freshbooks gcp gemini github gitlab gitter google grafana groq heroku hubspot huggingface infura "
    "intercom jfrog jira kraken kucoin launchdarkly linear linkedin lob looker mailchimp mailgun mailjet mapbox maps "
    "mattermost messagebird mistral mixpanel mongodb netlify newrelic nexmo notion npm okta openai openrouter opsgenie "
    "pagerduty paypal perplexity pinecone plaid postmark pulumi pusher rapidapi redis replicate rollbar segment "
    "sendbird sendgrid sentry shopify slack snyk sonar splunk square squarespace stripe sumologic supabase tavily "
    "telegram trello twilio twitch twitter typeform vault vercel vonage wandb weather yandex youtube zendesk "
    "zoom meraki droneci finicity nytimes privateai sidekiq sourcegraph travisci freemius sendinblue gocardless "
    "planetscale databricks clickhouse duffel dynatrace easypost flutterwave frameio hashicorp postman prefect readme "
    "rubygems scalingo shippo cosmos fullstory".split()
)
"""Vendors whose keys have no recognizable format."""

_PUBLIC = frozenset("public pub publishable".split())
_NOT_SECRET_KEYS = frozenset(
    "primary foreign partition sort range hash cache map dict sorting index unique composite "
    "natural group lookup i18n translation locale registry hot shortcut keyboard arrow object bucket file row column "
    "field idempotency event message trace".split()
)
_NEVER_SECRET = frozenset("page continuation cursor eos bos pad unk vocab prompt completion lexer parser".split())
_NOT_SECRET_TOKENS = frozenset(
    "page next prev previous continuation continue sync cursor eos bos pad unk sep cls mask special stop start end "
    "begin first last current max min num total count n prompt completion input output vocab per nextpage image audio "
    "design color text word lexer parser resume position cancellation cancel abort peek".split()
)


def words_as_written(name: str) -> list[str]:
    """The words of a name in any case style: `dbPassword`, `DB_PASSWORD`, `db.password`."""
    return _WORD_IN_NAME.findall(name)


def split_words(name: str) -> list[str]:
    """The words of a name in any case style, in lower case."""
    return [word.lower() for word in words_as_written(name)]


@lru_cache(maxsize=8192)
def name_strength(name: str) -> Strength:
    """How strongly a name announces a secret."""
    if name.strip("-.") == "PASS":  # the output of a test run
        return Strength.NOTHING
    words = split_words(name.replace("ñ", "n"))
    while len(words) > 1 and (words[-1] in _QUALIFIERS or words[-1] in _VENDORS or words[-1].isdigit()):
        words.pop()
    if words[-1:] == ["string"] and words[-2:-1] == ["secret"]:
        words.pop()
    last, before = words[-1] if words else "", frozenset(words[:-1])
    plural = len(last) > 4 and last.endswith("s")
    single = last[:-1] if plural or last == "keys" else last
    if single == "key":
        return _strength_of_key(words[:-1], before)
    if before & (_PUBLIC | {"existing", "pull"}):
        return Strength.NOTHING
    if single.endswith(_PASSWORDS) or last in _WHOLE_PASSWORDS or (single in _PARTS_OF_PASSWORDS and "pass" in before):
        return Strength.PASS
    if single.endswith("token"):
        what = words[-2] if last == "token" and before else last.removesuffix("token")
        if plural or what in _NOT_SECRET_TOKENS or before & _NEVER_SECRET or last == "jsonwebtoken":
            return Strength.NOTHING
        return Strength.STRONG if before or last != "token" else Strength.LONE
    if single.endswith(_SECRETS) or last in _WHOLE_SECRETS:
        return Strength.STRONG
    return Strength.WEAK if last in _WEAK else Strength.NOTHING


# A value beside the bare name of one of these is more likely a commit, a digest, a channel or an account.
_AMBIGUOUS_VENDORS = frozenset(
    "aws azure docker elastic firebase gcp github gitlab google linear linkedin maps mongodb notion npm readme redis "
    "segment slack splunk square twitter vault weather youtube zoom facebook discord cosmos".split()
)


def is_vendor_name(name: str) -> bool:
    """Whether a name is only that of a vendor, so that its value is likely a key: `algolia: …`."""
    words = [word for word in split_words(name) if word not in _QUALIFIERS]
    return len(words) == 1 and words[0] in _VENDORS and words[0] not in _AMBIGUOUS_VENDORS


def is_cookie(name: str) -> bool:
    """Whether the value of a name is a cookie, and not a secret used to sign cookies."""
    return name.lower().rstrip("s2").endswith("cookie")


def _strength_of_key(words: list[str], before: frozenset[str]) -> Strength:
    if not words or before & _PUBLIC:
        return Strength.NOTHING
    if words[-1] in _KINDS_OF_KEY or "secret" in before:
        return Strength.STRONG
    if before & _NOT_SECRET_KEYS:
        return Strength.NOTHING
    return Strength.STRONG if before & _VENDORS else Strength.WEAK
