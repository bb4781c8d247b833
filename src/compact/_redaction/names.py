"""Names that tell that a secret follows.

Owns: how telling a name is, in any case style, with its prefixes and suffixes.
Must never: look at values.

A name is read as words (`DB_PASSWORD`, `dbPassword`, `spring.datasource.password`). Its last word decides, after those
that only say which one it is (`_prod`, `_2`). So `token_count`, `password_hash` and `secretName` tell nothing.
"""

from __future__ import annotations

from enum import IntEnum
from functools import lru_cache

from .assigned_values import word_list

__all__ = ["LITERALS", "Telling", "is_cookie", "names_a_vendor", "telling"]

LITERALS = tuple(
    "pass pwd psw pword pw secret token auth cookie cred key psk jwt sess salt _pat kennwort wachtwoord "
    "senha contrase парол 密码".split()
)
"""What every telling name holds, in lower case."""


class Telling(IntEnum):
    """How much a name says about its value."""

    NOTHING = 0
    WEAK = 1
    """Only a value that looks random is a secret."""
    LONE = 2
    """As `token` alone, which is also a word of a text: a plain word is no secret."""
    STRONG = 3
    """Anything that is no placeholder, reference or code is a secret."""
    PASS = 4
    """People choose the value: it may be short."""


_WHICH = frozenset(
    "value val base prod production live dev development test testing staging stage qa old new current previous b64 "
    "base64 str plain plaintext raw default primary secondary main backup temp tmp confirmation confirm again repeat "
    "verify first second one two a b env override encoded decoded bytes hex admin root db database app master postgres "
    "mysql redis smtp ftp ssh ldap mail email local remote us eu v set".split()
)
"""Words behind the telling one that only say which one it is."""

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
"""Vendors whose keys show nothing by themselves."""

_PUBLIC = frozenset("public pub publishable".split())
_NO_SECRET_KEY = frozenset(
    "primary foreign partition sort range hash cache map dict sorting index unique composite "
    "natural group lookup i18n translation locale registry hot shortcut keyboard arrow object bucket file row column "
    "field idempotency event message trace".split()
)
_NO_SECRET_AT_ALL = frozenset("page continuation cursor eos bos pad unk vocab prompt completion lexer parser".split())
_NO_SECRET_TOKEN = frozenset(
    "page next prev previous continuation continue sync cursor eos bos pad unk sep cls mask special stop start end "
    "begin first last current max min num total count n prompt completion input output vocab per nextpage image audio "
    "design color text word lexer parser resume position cancellation cancel abort peek".split()
)


@lru_cache(maxsize=8192)
def telling(name: str) -> Telling:
    """How telling a name is."""
    if name.strip("-.") == "PASS":  # what a run of tests says
        return Telling.NOTHING
    words = word_list(name.replace("ñ", "n"))
    while len(words) > 1 and (words[-1] in _WHICH or words[-1] in _VENDORS or words[-1].isdigit()):
        words.pop()
    if words[-1:] == ["string"] and words[-2:-1] == ["secret"]:
        words.pop()
    last, before = words[-1] if words else "", frozenset(words[:-1])
    plural = len(last) > 4 and last.endswith("s")
    single = last[:-1] if plural or last == "keys" else last
    if single == "key":
        return _key(words[:-1], before)
    if before & (_PUBLIC | {"existing", "pull"}):
        return Telling.NOTHING
    if single.endswith(_PASSWORDS) or last in _WHOLE_PASSWORDS or (single in _PARTS_OF_PASSWORDS and "pass" in before):
        return Telling.PASS
    if single.endswith("token"):
        what = words[-2] if last == "token" and before else last.removesuffix("token")
        if plural or what in _NO_SECRET_TOKEN or before & _NO_SECRET_AT_ALL or last == "jsonwebtoken":
            return Telling.NOTHING
        return Telling.STRONG if before or last != "token" else Telling.LONE
    if single.endswith(_SECRETS) or last in _WHOLE_SECRETS:
        return Telling.STRONG
    return Telling.WEAK if last in _WEAK else Telling.NOTHING


# Of these, what stands beside the name alone is more likely something else: a commit, a digest, a channel, an account.
_NO_KEY_BESIDE = frozenset(
    "aws azure docker elastic firebase gcp github gitlab google linear linkedin maps mongodb notion npm readme redis "
    "segment slack splunk square twitter vault weather youtube zoom facebook discord cosmos".split()
)


def names_a_vendor(name: str) -> bool:
    """Whether a name is that of a vendor and no more, whose key may be all that it means: `algolia: …`."""
    words = [word for word in word_list(name) if word not in _WHICH]
    return len(words) == 1 and words[0] in _VENDORS and words[0] not in _NO_KEY_BESIDE


def is_cookie(name: str) -> bool:
    """Whether what stands under a name is a cookie, and no secret that has to do with cookies."""
    return name.lower().rstrip("s2").endswith("cookie")


def _key(words: list[str], before: frozenset[str]) -> Telling:
    if not words or before & _PUBLIC:
        return Telling.NOTHING
    if words[-1] in _KINDS_OF_KEY or "secret" in before:
        return Telling.STRONG
    if before & _NO_SECRET_KEY:
        return Telling.NOTHING
    return Telling.STRONG if before & _VENDORS else Telling.WEAK
