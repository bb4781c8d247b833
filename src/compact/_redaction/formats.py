"""The formats of tokens, as their vendors document them: data, no machinery.

Owns: the literals by which a token shows what it is, and what may follow them.
Must never: hold an id that a provider of models hands out (`call_`, `toolu_`, `resp_`, `msg_`), or a key that is meant
to be public (`pk_live_`).

An agent often sees a token cut off, so the least length is well below the documented one wherever the start is telling.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

__all__ = ["PLAIN", "SHAPED", "SPOTTED"]

_ALNUM, _WORD, _HEX, _UPPER = "A-Za-z0-9", "A-Za-z0-9_-", "A-Fa-f0-9", "A-Z0-9"
_BASE64, _DOTTED = "A-Za-z0-9+/=", "A-Za-z0-9_.=-"

PLAIN: tuple[tuple[str, int, str], ...] = (
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
"""The letters that may follow, the least number of them, and the starts."""

_UUID = r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}"

SHAPED: Mapping[str, str] = {
    # Some hold no digit at all; cut off, they must.
    **dict.fromkeys(
        "AKIA ASIA ABIA ACCA".split(),
        r"[A-Z0-9]{16}(?![A-Za-z0-9])|(?=[A-Z]{0,7}[0-9])[A-Z0-9]{8,15}(?=\.\.\.|…|\[)",
    ),
    # An empty second part is a token encrypted with a key that both sides hold.
    "eyJ": r"[A-Za-z0-9_-]{6,2048}\.(?:eyJ)?[A-Za-z0-9_-]{4,2048}(?:\.[A-Za-z0-9_-]{0,8192}){0,3}"
    r"|[A-Za-z0-9_-]{6,2048}\.\.[A-Za-z0-9_-]{8,2048}(?:\.[A-Za-z0-9_-]{1,8192}){0,2}",
    # A private key in base64 once more, as Kubernetes keeps it; certificates and public keys start otherwise.
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
    # The first part of a bot's token at Discord is its number in base64.
    **dict.fromkeys(
        "MTA MTE MTI MTM MTQ MTU MTY MTc MTg MTk MT Mj Mz ND NT Nj Nz OD OT".split(),
        r"[A-Za-z0-9_-]{18,26}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{6,2048}",
    ),
}
"""Tokens of several parts: how they start, and the pattern of the rest."""

# A word starts, or behind it a colour of a terminal or an escaped line's end.
_AT_WORD = r"(?:(?<![A-Za-z0-9+/])|(?<=[0-9\[]m)|(?<=\\[nrt]))"

SPOTTED: Mapping[str, str] = {
    ":AA": r"(?:bot)?[0-9]{8,10}:AA[A-Za-z0-9_-]{16,}",
    ":APA91b": r"AAAA[A-Za-z0-9_-]{7}:APA91b[A-Za-z0-9_-]{40,}",
    ".atlasv1.": r"[A-Za-z0-9]{14}\.atlasv1\.[A-Za-z0-9_=-]{20,}",
    "Q~": r"(?:(?<![A-Za-z0-9_~.%/-])|(?<=[0-9\[]m)|(?<=\\[nrt]))[A-Za-z0-9_~.-]{3}[0-9]Q~[A-Za-z0-9_~.-]{14,}",
    "-us": r"[0-9a-f]{32}-us[0-9]{1,2}(?![A-Za-z0-9])",
    "NRAL": r"[0-9A-Za-z]{32,36}(?:FFFF)?NRAL(?![A-Za-z0-9])",
    "_mmk": r"[A-Za-z0-9]{6}_[A-Za-z0-9]{29}_mmk",
    "-NRMA": r"[A-Za-z0-9]{32,40}-NRMA(?![A-Za-z0-9])",
    # Keys of Azure carry a sign of their service near the end.
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
    # One-time links: whoever knows the path may post.
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
"""Tokens whose telling literal stands in their middle or at their end, and links that are secrets: literal, whole
pattern."""
