"""Tokens of vendors, known by their format or by the vendor's name beside them.

Owns: the table of token formats, as the vendors document them, and finding such tokens in a text.
Must never: match an id that a provider of models gives out (`call_`, `toolu_`, `resp_`, `msg_`), match a key that is
meant to be public (`pk_live_`), or run a pattern where its literal does not occur.

Rules:
- A prefix counts only where a word starts: behind a letter it is the end of another word (`task-…`), unless that letter
  ends a terminal colour code or an escape (`\\n`, `%3D`, `\\u0022`).
- What follows a prefix must look random: `sk-your-key-here` and `ghp_xxxxxxxx` are placeholders.
- An agent often sees a token cut off, so behind a specific prefix the least length is well below the documented one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache

from .assigned_values import has_random_part, is_harmless, is_placeholder, looks_random
from .key_names import is_vendor_name
from .prefilter import Literals, any_of
from .spans import REDACTED, SecretSpan, replace_spans

_ALNUM, _WORD, _HEX, _UPPER = "A-Za-z0-9", "A-Za-z0-9_-", "A-Fa-f0-9", "A-Z0-9"
_BASE64, _DOTTED = "A-Za-z0-9+/=", "A-Za-z0-9_.=-"

PREFIXES: tuple[tuple[str, int, str], ...] = (
    # models, and what is built around them
    (_WORD, 12, "sk-"),
    (_WORD, 10, "gsk_ xai- pplx- nvapi- tvly- csk- jina_ llx- pcsk_ tgp_v1_ esecret_ e2b_ unkey_ lsv2_pt_ lsv2_sk_"),
    (
        _WORD,
        16,
        "wandb_v1_ pylf_v1_ luma- sgamp_ apk_user_ mint_ composio_ tr_dev_ tr_prod_ tr_stg_ tr_pat_",
    ),
    (_WORD, 16, "signkey-prod- signkey-test-"),
    (_HEX, 32, "crsr_ key_"),
    (_ALNUM, 20, "aio_ hf_ api_org_ rpa_ fw_"),
    (_WORD, 20, "r8_ phx_ phs_"),
    (_HEX, 16, "fc- key- pubkey-"),
    # forges, packages, builds
    (_ALNUM, 10, "ghp_ gho_ ghu_ ghs_ ghr_ ATBB"),
    (_BASE64, 20, "BBDC-"),
    (
        _WORD,
        10,
        "github_pat_ CCIPAT_ CCIPRJ_ ATATT3x ATCTT3x HRKU- dckr_pat_ dckr_oat_ pypi-AgE waka_ nfp_ nfc_ nfo_ nfu_",
    ),
    (_WORD, 20, "ATATT ATCTT nsct_ depot_ vtwn_ vercel_blob_rw_ mergify_application_key_"),
    (_HEX + "_", 30, "sgp_ slk_ sqco_"),
    (_HEX, 60, "ATTA"),
    (
        _DOTTED,
        9,
        "glpat- gldt- glrt- glptt- glcbt- glft- glsoat- glagent- glimt- gloas- glffct- glwt- glrtr- GR1348941",
    ),
    (
        _ALNUM,
        20,
        "npm_ AKCp cmVmd CLOJARS_ pnu_ pnb_ bkua_ bkaj_ bkat_ bkct_ rdme_ vcp_ vci_ vca_ vcr_ vck_",
    ),
    (_ALNUM, 20, "apify_api_ ctp_ csa_"),
    (_WORD, 20, "ddp_ ddo_ ddw_ ddpat_ ddapp_"),
    (_WORD, 20, "pypi- fo1_ rubygems_ squ_ sqp_ sqa_ sqb_ pat-na1- pat-na2- pat-eu1- pat-ap1- tk-us- spkl_"),
    (_ALNUM, 32, "cio oy2"),
    (_BASE64, 24, "fm1r_ fm1a_ fm2_"),
    # clouds and databases
    (_UPPER, 17, "A3T"),
    (_ALNUM, 20, "da2-"),
    (_BASE64, 20, "bedrock-api-key-"),
    (_WORD, 24, "AQ.Ab8 amzn1.oa2-cs.v1. essu_ essp_"),
    (_ALNUM, 30, "AKLT AKTP"),
    (_BASE64, 40, "ABSK IQoJb3JpZ2lu"),
    (_WORD, 10, "GOCSPX-"),
    (_WORD, 18, "AIza ya29. 1//0 AQVN y0_ YCAJ YCM YCN YCO YCP"),
    (_ALNUM, 16, "LTAI"),
    (_UPPER, 17, "GOOG1 SCW"),
    (_WORD, 20, "sha256~ bce-v3/ALTAK- SWMTKN-1-"),
    (_ALNUM, 32, "AKID 4b1d"),
    (_HEX, 16, "dop_v1_ doo_v1_ dor_v1_ shpat_ shpca_ shppa_ shpss_ shpua_"),
    (_HEX, 16, "dapi"),
    (_HEX, 32, "dose dkea"),
    (_WORD, 10, "AVNS_ CCDB1_ napi_ mdb_sa_sk_ fnAE fnAF sb_secret_ rnd_ tskey- cfut_ cfat_ cfk_"),
    (_DOTTED, 16, "hvs. hvb. hvr. dt0c01. dt0s01. dt0s02. dt0s16. dp.pt. dp.st. dp.ct. dp.sa. dp.scim. dp.audit."),
    (_DOTTED, 16, "pscale_tkn_ pscale_pw_ pscale_oauth_ AstraCS: amzn.mws. v1.0-"),
    # watching
    (
        _WORD,
        10,
        "NRAK- NRII- NRJS- NRRA- NRAA- NRAL- NRIQ- NRBR- sntryu_ sntrya_ sntryi_ hcaik_ hcalk_ hcamk_ xaat- xapt-",
    ),
    (_WORD, 10, "hbp_ glsa_"),
    (_BASE64 + "_-", 20, "sntrys_ glc_ eyJrIjoi ops_eyJ"),
    # money and shops
    (_WORD, 10, "sk_live_ sk_test_ sk_prod_ rk_live_ rk_test_ rk_prod_"),
    (
        _WORD,
        24,
        "polar_oat_ polar_pat_ polar_rst_ pdl_live_apikey_ pdl_sdbx_apikey_ cfsk_ma_ APP_USR-",
    ),
    (_WORD, 24, "mercury_production_ mercury_sandbox_"),
    (_WORD, 40, "A21AA"),
    (_BASE64, 16, "whsec_"),
    (
        _WORD,
        10,
        "sq0atp- sq0csp- sq0idp- sq0idb- duffel_live_ duffel_test_ rzp_live_ rzp_test_ FLWSECK_TEST- FLWSECK- ACCESS~",
    ),
    (_WORD, 30, "EAAA EAAB EAAC EAAD EAAE EAAF EAAG EAAH EAAI EAAM IGQV IGQW"),
    (_HEX, 24, "shippo_live_ shippo_test_"),
    (_ALNUM, 28, "live_ test_"),
    # talking
    ("A-Za-z0-9-", 10, "xoxb- xoxp- xoxa- xoxr- xoxs- xoxo- xoxd- xoxc- xoxe- xapp- xwfp-"),
    ("A-Za-z0-9.-", 10, "xoxe."),
    (_WORD, 24, "xkeysib- xsmtpsib- mlsn. nyk_v0_ pina_"),
    # desks
    (
        _WORD,
        10,
        "lin_api_ lin_oauth_ figd_ figu_ figo_ figp_ figoh_ figou_ figor_ PMAK- PMAT- CFPAT- fio-u- dbtc_ dbts_ dbtu_",
    ),
    (_WORD, 10, "p8e- dnkey-"),
    (_DOTTED, 16, "tfp_ snyk_uat. snyk_sat."),
    (_ALNUM, 16, "sm_aat_ sm_pat_ sm_sat_"),
    (_ALNUM, 25, "secret_"),
    (_WORD, 60, "sl. sl.u."),
    (_ALNUM, 24, "ntn_ rca_ obu_ shltm_ endr+ BBFF- BBUS- rl_live_"),
    (_WORD, 20, "bb_pr_ bb_ma_ zpka_ rootly_ salad_cloud_ samsara_api_ thog-secret- hawk. dvc_server_ dvc_client_"),
    (_DOTTED, 40, "3MVG9 5AEP861"),
    (_UPPER, 30, "NF-"),
    (_WORD, 20, "api_live. api_sandbox. secret-token: wrkprod- wrktrial- pdus+ pdeu+"),
    (_WORD, 18, "access-sandbox- access-production- access-development-"),
    (_HEX, 40, "s-s4t2ud- s-s4t2af-"),
    (_UPPER, 20, "AGE-SECRET-KEY-1 AGE-SECRET-KEY-PQ-1"),
    ("A-Z0-9-", 20, "A3-"),
    (_BASE64, 30, "dG9rO"),
)
"""The letters that may follow, the least number of them, and the prefixes."""

_UUID = r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}"

SHAPED_PREFIXES: Mapping[str, str] = {
    # Some hold no digit at all; cut off, they must.
    **dict.fromkeys(
        "AKIA ASIA ABIA ACCA".split(),
        r"[A-Z0-9]{16}(?![A-Za-z0-9])|(?=[A-Z]{0,7}[0-9])[A-Z0-9]{8,15}(?=\.\.\.|…|\[)",
    ),
    # The second part is empty in a token that is encrypted with a shared key.
    "eyJ": r"[A-Za-z0-9_-]{6,2048}\.(?:eyJ)?[A-Za-z0-9_-]{4,2048}(?:\.[A-Za-z0-9_-]{0,8192}){0,3}"
    r"|[A-Za-z0-9_-]{6,2048}\.\.[A-Za-z0-9_-]{8,2048}(?:\.[A-Za-z0-9_-]{1,8192}){0,2}",
    # A private key in base64 twice, as Kubernetes keeps it; certificates and public keys start otherwise.
    "LS0tLS1CRUdJTi": r"(?!BDRVJU|BQVUJM|BSU0EgUFVC|BTU0gyIFBV)[A-Za-z0-9+/=_-]{20,2048}",
    **dict.fromkeys("SUA SAA SOA SNA SCA".split(), r"[A-Z2-7]{55}(?![A-Z0-9])"),
    "sk_": r"(?:[0-9a-f]{16,2048}(?![A-Za-z0-9])|(?:[a-z]{2,8}_)?(?=[A-Za-z]{0,64}[0-9])[A-Za-z0-9]{24,2048})",
    "api_": r"[A-Za-z0-9]{22}\.[A-Za-z0-9]{22}",
    "ak-": r"(?=[A-Za-z]{0,21}[0-9])(?=[a-z0-9]{0,21}[A-Z])[A-Za-z0-9]{22}(?![A-Za-z0-9])",
    "as-": r"(?=[A-Za-z]{0,21}[0-9])(?=[a-z0-9]{0,21}[A-Z])[A-Za-z0-9]{22}(?![A-Za-z0-9])",
    "pa-": r"(?=[A-Za-z_-]{0,42}[0-9])(?=[a-z0-9_-]{0,42}[A-Z])[A-Za-z0-9_-]{43}(?![A-Za-z0-9_-])",
    **dict.fromkeys(
        "sc_ ext_ scauth_ authress_".split(),
        r"[A-Za-z0-9]{5,30}\.[A-Za-z0-9]{4,6}\.(?:acc|ext)[_-][A-Za-z0-9-]{10,32}\.[A-Za-z0-9+/_=-]{30,120}",
    ),
    "KEY0": r"[0-9A-F]{31}_[A-Za-z0-9]{22}(?![A-Za-z0-9])",
    "na1.": r"(?=[A-Za-z+/]{0,64}[0-9])[A-Za-z0-9+/]{40,512}={0,2}",
    **dict.fromkeys(("pul-", "sbp_"), r"(?=[a-z]{0,30}[0-9])(?:[a-z0-9]{30,64}|[0-9a-f]{16,64})"),
    # Not `favicon.ico-…`, a file with its digest.
    "ico-": r"(?<![A-Za-z0-9>]\.ico-)[A-Za-z0-9]{20,64}(?![A-Za-z0-9])",
    "rh-api-": _UUID,
    "API-": r"[A-Z0-9]{26,30}(?![A-Za-z0-9])",
    "EZAK": r"[A-Za-z0-9]{54}(?![A-Za-z0-9+/])",
    "EZTK": r"[A-Za-z0-9]{54}(?![A-Za-z0-9+/])",
    "pi_": r"[A-Za-z0-9]{16,64}_secret_[A-Za-z0-9]{16,64}",
    "seti_": r"[A-Za-z0-9]{16,64}_secret_[A-Za-z0-9]{16,64}",
    "VF.": r"(?:DM|WS)\.[A-Za-z0-9.]{24,128}",
    "1000.": r"[a-f0-9]{32}\.[a-f0-9]{32}",
    "00D": r"[A-Za-z0-9]{12,15}![A-Za-z0-9_.]{40,256}",
    "SG.": r"[A-Za-z0-9_-]{16,2048}\.[A-Za-z0-9_-]{8,2048}",
    "pat": r"[A-Za-z0-9]{14}\.[a-f0-9]{20,2048}|\.[A-Za-z0-9_-]{22}\.[A-Za-z0-9]{12,2048}(?:\.[A-Za-z0-9]+)?",
    "sat.": r"[A-Za-z0-9_-]{22}\.[A-Za-z0-9]{12,2048}(?:\.[A-Za-z0-9]+)?",
    "SK": r"[0-9a-f]{18,32}(?![A-Za-z0-9])",
    "s.": r"(?=[a-z0-9]{0,20}[A-Z])(?=[A-Za-z]{0,20}[0-9])[A-Za-z0-9]{24}(?![A-Za-z0-9])",
    "1/": r"[0-9]{12,17}:[0-9a-f]{20,32}",
    "2/": r"[0-9]{12,17}/[0-9]{12,17}:[0-9a-f]{20,32}",
    "re_": r"[A-Za-z0-9]{6,10}_[A-Za-z0-9]{12,2048}",
    "ls__": r"[0-9a-f]{24,2048}",
    "pk.eyJ": r"[A-Za-z0-9_-]{30,2048}\.[A-Za-z0-9_-]{10,2048}",
    "sk.eyJ": r"[A-Za-z0-9_-]{30,2048}\.[A-Za-z0-9_-]{6,2048}",
    "t1.": r"[A-Za-z0-9_-]{6,2048}={0,2}\.[A-Za-z0-9_-]{40,2048}={0,2}",
    "sdk-": _UUID,
    "mob-": _UUID,
    "api-": _UUID,
    "b_": r"[A-Za-z0-9]{44}(?![A-Za-z0-9])",
    "access_token$": r"(?:production|sandbox)\$[a-z0-9]{12,2048}\$[a-f0-9]{16,2048}",
    # The first part of a Discord bot token is the bot's id in base64.
    **dict.fromkeys(
        "MTA MTE MTI MTM MTQ MTU MTY MTc MTg MTk MT Mj Mz ND NT Nj Nz OD OT".split(),
        r"[A-Za-z0-9_-]{18,26}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{6,2048}",
    ),
}
"""Tokens of several parts: their prefix, and the pattern of the rest."""

# A word starts here, or a terminal colour code or an escaped line end stands before it.
_AT_WORD = r"(?:(?<![A-Za-z0-9+/])|(?<=[0-9\[]m)|(?<=\\[nrt]))"

INNER_LITERALS: Mapping[str, str] = {
    ":AA": r"(?:bot)?[0-9]{8,10}:AA[A-Za-z0-9_-]{16,}",
    ":APA91b": r"AAAA[A-Za-z0-9_-]{7}:APA91b[A-Za-z0-9_-]{40,}",
    ".atlasv1.": r"[A-Za-z0-9]{14}\.atlasv1\.[A-Za-z0-9_=-]{20,}",
    "Q~": r"(?:(?<![A-Za-z0-9_~.%/-])|(?<=[0-9\[]m)|(?<=\\[nrt]))[A-Za-z0-9_~.-]{3}[0-9]Q~[A-Za-z0-9_~.-]{14,}",
    "-us": r"[0-9a-f]{32}-us[0-9]{1,2}(?![A-Za-z0-9])",
    "NRAL": r"[0-9A-Za-z]{32,36}(?:FFFF)?NRAL(?![A-Za-z0-9])",
    "_mmk": r"[A-Za-z0-9]{6}_[A-Za-z0-9]{29}_mmk",
    "-NRMA": r"[A-Za-z0-9]{32,40}-NRMA(?![A-Za-z0-9])",
    # Azure keys hold a literal of their service near the end.
    "AZDO": rf"{_AT_WORD}[A-Za-z0-9]{{76}}AZDO[A-Za-z0-9]{{4}}(?![A-Za-z0-9])",
    "AzSe": rf"{_AT_WORD}[A-Za-z0-9]{{42}}AzSe[A-Za-z0-9]{{6}}(?![A-Za-z0-9])",
    "AzFu": rf"{_AT_WORD}[A-Za-z0-9_-]{{44}}AzFu[A-Za-z0-9_-]{{5,6}}={{0,2}}",
    "AzCa": rf"{_AT_WORD}[A-Za-z0-9]{{33}}AzCa[A-Za-z0-9]{{5,6}}={{0,2}}",
    **{
        sign: rf"{_AT_WORD}(?:[A-Za-z0-9+/]{{76}}|[A-Za-z0-9+/]{{42}}|[A-Za-z0-9+/]{{33}}){re.escape(sign)}"
        r"[A-Za-z0-9+/]{5,6}={0,2}(?![A-Za-z0-9+/])"
        for sign in "ACDb +ACR +ASt +ABa APIM AIoT +ASb +AEh +ARm AZEG +AMC".split()
    },
    "JQQJ99": r"(?<![A-Za-z0-9])[A-Za-z0-9]{40,60}JQQJ99[A-Za-z0-9]{20,30}",
    "|": r"[0-9]{15,16}\|[A-Za-z0-9_-]{27,40}(?![A-Za-z0-9_-])",
    "AAAAAAAAAAAAAAAAAAAAA": r"(?<![A-Za-z0-9+/])A{21,22}[A-Za-z0-9%]{30,}",
    "ZXlK": r"(?<![A-Za-z0-9+/])ZXlK[A-Za-z0-9+/]{40,}={0,2}",
    # Webhooks: the path is the credential.
    "hooks.slack.com/": r"(?<=hooks\.slack\.com/)(?:services|workflows|triggers)/[A-Za-z0-9_/-]{12,}",
    "/api/webhooks/": r"(?<=/api/webhooks/)[0-9]{16,20}/[A-Za-z0-9_-]{20,}",
    ".office.com/webhook": r"(?<=\.office\.com/)webhook[a-z0-9]*/[A-Za-z0-9_@/-]{30,}",
    "hooks.zapier.com/": r"(?<=hooks\.zapier\.com/)hooks/catch/[A-Za-z0-9]+/[A-Za-z0-9]{6,}",
    ".tines.com/webhook": r"(?<=\.tines\.com/)webhook/[A-Za-z0-9]{24,}/[A-Za-z0-9]{24,}",
    "Atza|": r"Atza\|[A-Za-z0-9_-]{30,}",
    "Atzr|": r"Atzr\|[A-Za-z0-9_-]{30,}",
    "==:": r"(?<![A-Za-z0-9+/])[A-Za-z0-9+/]{22}==:[A-Za-z0-9]{32}(?![A-Za-z0-9])",
    "_PF84_": rf"(?<![A-Za-z0-9])[A-Za-z0-9]{{64}}_PF84_{_UUID}",
    "_P0A1_": rf"(?<![A-Za-z0-9])[A-Za-z0-9]{{64}}_P0A1_{_UUID}",
    ".make.com/": r"(?<=\.make\.com/)[a-z0-9]{24,}",
    "BEGIN OpenVPN Static key": r"(?<=BEGIN OpenVPN Static key V1-----)[0-9a-f\s\\rn]{32,4096}",
}
"""Tokens with a known literal in their middle or at their end, and secret links: the literal, and the whole pattern."""

# What may stand right before a token though it ends in a letter: an escape, a URL escape, a terminal colour code.
_ESCAPE = r"(?:\\[nrtbf]|u00[0-9a-f]{2}|%[0-9A-Fa-f]{2}|\[[0-9;]{0,12}m)"
# A word starts, and it is long enough for a token: this is faster to check than whether it is one.
_WORD_START = r"(?<![A-Za-z0-9_])(?=[A-Za-z0-9_./~:$+-]{12})"
# A vendor that is not in the table: `acme_live_8fK2…`. A publishable key starts with `pk`.
_UNLISTED = re.compile(
    r"_(?:live|test|prod|sandbox|pat|sk|secret|token|key|api|auth)_(?=[A-Za-z]{0,32}[0-9])(?=[0-9]{0,32}[A-Za-z])[A-Za-z0-9]{16,}"
)
# A Discord bot token: the bot's id, a time and a signature.
_DISCORD_BOT = re.compile(
    r"[MNO](?<![A-Za-z0-9_.-].)[A-Za-z0-9_-]{23,25}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,40}(?![A-Za-z0-9_-])"
)
_COLOUR_START = re.compile(r"\[[0-9;]{0,12}\Z")
_VENDOR_BEFORE = re.compile(r"(?:[a-z][a-z0-9]{1,15})\Z")


def redact_vendor_tokens(text: str) -> str:
    """The text with every known token replaced."""
    if "\\" in text or "%" in text or "[" in text or "u00" in text:
        text = _redact_prefixed(text, _prefixes(_ESCAPE))
    text = _redact_prefixed(text, _prefixes(_WORD_START))
    text = _DISCORD_BOT.sub(REDACTED, text)
    for literal in _inner_literals().find_in(text):
        text = _around_inner(literal).sub(_redact_unless_placeholder, text)
    return _redact_unlisted(text)


def _redact_unless_placeholder(match: re.Match[str]) -> str:
    return match[0] if is_placeholder(match[0]) else REDACTED


def _redact_unlisted(text: str) -> str:
    spans: list[SecretSpan] = []
    done = 0
    for match in _UNLISTED.finditer(text):
        name = _VENDOR_BEFORE.search(text, max(done, match.start() - 16), match.start())
        if not name:
            continue
        start, word = name.start(), name[0]
        if word[0] == "m" and _COLOUR_START.search(text, max(0, start - 14), start):
            start, word = start + 1, word[1:]
        if len(word) > 1 and word != "pk":
            spans.append(SecretSpan(start, match.end()))
            done = match.end()
    return replace_spans(text, spans)


def _redact_prefixed(text: str, prefixes: re.Pattern[str]) -> str:
    spans: list[SecretSpan] = []
    passed = 0
    for match in prefixes.finditer(text):
        if match.start(1) < passed:
            continue
        prefix = match[1]
        rest = _rest(prefix).match(text, match.end())
        if not rest:
            continue
        # Where no part of the rest is random, no other token stands in it either.
        passed = rest.end()
        if not is_placeholder(rest[0]) and (prefix in SHAPED_PREFIXES or has_random_part(rest[0])):
            spans.append(SecretSpan(match.start(1), passed))
    return replace_spans(text, spans)


@cache
def _rests() -> dict[str, str]:
    rests = {prefix: f"[{letters}]{{{least},}}" for letters, least, group in PREFIXES for prefix in group.split()}
    return rests | dict(SHAPED_PREFIXES)


@cache
def _prefixes(before: str) -> re.Pattern[str]:
    return re.compile(f"{before}({any_of(_rests())})")


@cache
def _rest(prefix: str) -> re.Pattern[str]:
    """What may follow a prefix, compiled when it is first met: compiling all would slow the first call down."""
    return re.compile(_rests()[prefix])


@cache
def _inner_literals() -> Literals:
    return Literals(INNER_LITERALS)


@cache
def _around_inner(literal: str) -> re.Pattern[str]:
    return re.compile(INNER_LITERALS[literal])


_VENDOR_VALUE = re.compile(
    r"[=:](?:=|>)?[ \t]{0,4}\\{0,3}[\"'`]?(?P<value>[A-Za-z0-9_-]{24,128})(?![A-Za-z0-9_/+.@:-])"
)
_VENDOR_NAME = re.compile(r"(?<![\w.-])[A-Za-z][\w.-]{1,40}(?=\\{0,3}[\"']?\]?[ \t]{0,8}\Z)")


def redact_values_of_vendors(text: str) -> str:
    """The text with random values replaced that stand beside the name of a vendor: `algolia: 0f3c…`."""
    return _VENDOR_VALUE.sub(_redact_value_of_vendor, text)


def _redact_value_of_vendor(match: re.Match[str]) -> str:
    at, value = match.start(), match["value"]
    name = _VENDOR_NAME.search(match.string[max(0, at - 48) : at])
    if not name or not is_vendor_name(name[0]) or not looks_random(value, 24) or is_harmless(value):
        return match[0]
    return match[0][: match.start("value") - at] + REDACTED
