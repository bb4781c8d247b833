"""The redactor: secrets go, everything else stays, whatever it is given."""

from __future__ import annotations

import copy
import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compact._redact import REDACTED, Redactor, redact
from compact.errors import ConfigError

# Put together from halves, so that no scanner takes this file for a leak.
GITHUB = "gh" + "p_" + "A1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q7r8"
PEM = "-----BEGIN RSA " + "PRIVATE KEY-----"
PEM_END = "-----END RSA " + "PRIVATE KEY-----"
JWT = "ey" + "JhbGciOiJIUzI1NiJ9" + ".ey" + "JzdWIiOiIxMjM0In0" + ".c2lnbmF0dXJl"

VENDOR_TOKENS = [
    "sk" + "-proj-abcDEF123456ghiJKL7890",
    "sk" + "-ant-api03-abcDEF123456_ghi-JKL",
    "sk" + "_live_4eC39HqLyjWDarjtT1zdp7dc",
    GITHUB,
    "gh" + "o_" + "a1" * 18,
    "gh" + "s_" + "a1" * 18,
    "github" + "_pat_11ABCDEFG0abcdefghij_klmnop",
    "AK" + "IAIOSFODNN7EXAMPLE",
    "AS" + "IAIOSFODNN7EXAMPLE",
    "xo" + "xb-123456789012-abcdefGHIJKL",
    "AI" + "zaSyA1234567890abcdefghijklmnopqrstuv",
    "gl" + "pat-abcdefghij1234567890",
    "np" + "m_" + "aB3" * 12,
    "py" + "pi-AgEIcHlwaS5vcmc" + "aB3_" * 8,
    "hf" + "_" + "aBcD" * 9,
    JWT,
]


@pytest.mark.spec("S35")
def test_an_assigned_key_goes_and_its_name_stays() -> None:
    """The example of the specification, with the message in memory untouched."""
    message = {"role": "user", "content": "use api_key=sk-abc123 please"}
    before = copy.deepcopy(message)
    assert {"role": "user", "content": "use api_key=<REDACTED> please"} == redact(message)
    assert before == message


@pytest.mark.spec("S34")
def test_redaction_is_on_by_default() -> None:
    """A redactor made without arguments redacts; only an explicit no switches it off."""
    assert ("password=<REDACTED>", "password=hunter2") == (
        Redactor().redact("password=hunter2"),
        Redactor(enabled=False).redact("password=hunter2"),
    )


@pytest.mark.spec("S34")
@pytest.mark.parametrize("token", VENDOR_TOKENS, ids=lambda token: str(token[:7]))
@pytest.mark.parametrize(
    "around", ["{}", "see {} here", "({})", "\x1b[32m{}\x1b[0m", "\x1b[m{}", '{{"a": "{}"}}', "x\\n{}\\n"]
)
def test_a_known_token_goes_wherever_it_stands(token: str, around: str) -> None:
    """Formats of vendors are known by their start, behind a colour code too."""
    assert around.format(REDACTED) == redact(around.format(token))


@pytest.mark.spec("S34")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('"password": "x"', '"password": "<REDACTED>"'),
        ("{'password': 'x'}", "{'password': '<REDACTED>'}"),
        ('{\\"password\\": \\"x\\", \\"n\\": 1}', '{\\"password\\": \\"<REDACTED>\\", \\"n\\": 1}'),
        ('"password": "it\\"s" , 1', '"password": "<REDACTED>" , 1'),
        ('{"password": 12345678}', '{"password": "<REDACTED>"}'),
        ("DB_PASSWORD=supersecret", "DB_PASSWORD=<REDACTED>"),
        ("export AWS_SECRET_ACCESS_KEY=abc/def+123", "export AWS_SECRET_ACCESS_KEY=<REDACTED>"),
        ("db:\n  password: hunter\n  port: 1", "db:\n  password: <REDACTED>\n  port: 1"),
        ('const clientSecret = "abc"', 'const clientSecret = "<REDACTED>"'),
        ("'secret' => 'abc'", "'secret' => '<REDACTED>'"),
        ("curl --password hunter2 -v", "curl --password <REDACTED> -v"),
        ("curl --api-key=abc", "curl --api-key=<REDACTED>"),
        ("GET /x?token=abc123def&page=2", "GET /x?token=<REDACTED>&page=2"),
        ("Server=h;Uid=sa;Pwd=abc;", "Server=h;Uid=sa;Pwd=<REDACTED>;"),
        ("x-api-key: abcdef123", "x-api-key: <REDACTED>"),
        ("Authorization: Bearer abc.def", "Authorization: Bearer <REDACTED>"),
        ("-H 'authorization: Basic dXNlcjpwYXNz'", "-H 'authorization: Basic <REDACTED>'"),
        ("sent bearer abcdef123456", "sent bearer <REDACTED>"),
        ("Set-Cookie: id=a3f; Path=/", "Set-Cookie: <REDACTED>"),
        ("postgres://app:p4ss@db/x", "postgres://<REDACTED>@db/x"),
        (f"{PEM}\nMIIEowIBAAKCAQEA\nab==\n{PEM_END}\nrest", "<REDACTED>\nrest"),
        (f'{{"k": "{PEM}\\nMIIEowIBAAKCAQEA\\nMIIEow"}}', '{"k": "<REDACTED>"}'),
        (f"  {PEM}\n  MIIEowIBAAKCAQEAxyz\n  MIIE", "  <REDACTED>"),
        ("İ password=hunter2", "İ password=<REDACTED>"),
    ],
)
def test_a_secret_is_found_by_what_stands_around_it(text: str, expected: str) -> None:
    """Assignments, JSON, YAML, flags, headers, cookies, URLs and private keys: the frame stays, the secret goes."""
    assert expected == redact(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "The password is checked by the server.",
        "max_tokens=4096, prompt_tokens: 17, tokens: 5, token=5",
        '{"max_tokens": 100, "token_count": 12, "tokenizer": "gpt2"}',
        "def login(user: str, password: str = None) -> Token:",
        "self.password = password",
        "connect(user=user, password=db_password)",
        "password = get_password()",
        'token = os.environ["TOKEN"]',
        'if token == "abc": return',
        'print("Password:", x); input("Token: ")',
        '{"label": "enter password:", "b": "x"}',
        '{"a": "password=\\\\", "b": "x"}',
        '"password": {"type": "string"}',
        "API_KEY=${API_KEY} SECRET=$SECRET TOKEN=<your token> PASSWORD=***** API_KEY=your_api_key",
        'eos_token: "<eos>", pad_token = "[PAD]"',
        "password: null, secret: true",
        "PWD=/home/me",
        "task-0123456789abcdef risk-2024-01-15-report disk-0a1b2c3d4e5f",
        "git@github.com:a/b.git https://host:8080/a@b ssh://git@host/x",
        "postgres://user:password@localhost/db",
        "550e8400-e29b-41d4-a716-446655440000 da39a3ee5e6b4b0d3255bfef95601890afd80709",
        "call_abc123DEF456ghi789 toolu_01A09q90qw90lq917835lq9 resp_67ccd2bed1ec8190 msg_67ccd2bf17f0",
        "token=call_abc123DEF456ghi789",
        "<REDACTED> password=<REDACTED>",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    """Prose, code, counts, placeholders, hashes and ids come back as the very same object."""
    assert text is redact(text)


TELLING_KEYS = """
    password DB_PASSWORD passwd passphrase password_2 secret clientSecret aws_secret_access_key token access_token
    apiKey api-key API_KEY private_key Authorization Cookie
"""


@pytest.mark.parametrize("key", TELLING_KEYS.split())
def test_a_value_goes_by_the_name_of_its_key(key: str) -> None:
    """Under a telling key a text goes whole, alone or in a list."""
    assert {key: REDACTED, "other": 1} == redact({key: "plain words", "other": 1})
    assert {"a": [{key: [REDACTED, REDACTED]}]} == redact({"a": [{key: ["one", "two"]}]})


def test_a_harmless_value_under_a_telling_key_stays() -> None:
    """Counts, flags, placeholders, schemas and provider ids are no secrets, and nothing is copied for them."""
    value = {
        "max_tokens": 100,
        "tokens": "many",
        "token": 17,
        "secret": None,
        "password": {"type": "string"},
        "api_key": "${API_KEY}",
        "access_token": "call_abc123",
        "cookie": False,
        "credentials": 3,
    }
    assert value is redact(value)


def test_numbers_bytes_sets_and_keys_are_covered() -> None:
    """A numeric password, bytes, sets, tuples and secrets used as keys are redacted too."""
    value = {"password": 12345678, "raw": b"\xff token=abc123def", "some": {GITHUB}, "pair": (1, GITHUB)}
    assert {
        "password": REDACTED,
        "raw": b"\xff token=<REDACTED>",
        "some": {REDACTED},
        "pair": (1, REDACTED),
    } == redact(value)
    assert {REDACTED: 1, REDACTED + "'": 2} == redact({GITHUB: 1, GITHUB[:-1]: 2})


def test_only_what_changed_is_copied() -> None:
    """Parts without a secret are the same objects in the copy."""
    clean = {"role": "user", "content": ["hello"]}
    dirty = {"role": "user", "content": "password=hunter2"}
    result = redact([clean, dirty])
    assert clean is result[0]
    assert [clean, {"role": "user", "content": "password=<REDACTED>"}] == result
    assert "password=hunter2" == dirty["content"]


@pytest.mark.spec("T30")
def test_hostile_values_do_not_crash() -> None:
    """Cycles, shared parts, depth, surrogates, NUL and NaN are walked; what lies too deep is withheld."""
    loop: dict[str, Any] = {"password": "hunter2"}
    loop["self"] = loop
    loop["list"] = [loop, loop]
    assert {"password": REDACTED, "self": REDACTED, "list": [REDACTED, REDACTED]} == redact(loop)

    deep: Any = "password=hunter2"
    for _ in range(10_000):
        deep = [deep]
    withheld: Any = REDACTED
    for _ in range(100):
        withheld = [withheld]
    assert withheld == redact(deep)

    shared: Any = ["password=hunter2"]
    for _ in range(60):
        shared = [shared, shared]
    started = time.perf_counter()
    redact(shared)
    assert time.perf_counter() - started < 1

    odd = {"nan": float("nan"), "text": "\ud800\0", "object": object(), 5: None}
    assert odd is redact(odd)
    assert "\ud800 password=<REDACTED>" == redact("\ud800 password=hunter2")


NAMES = ("password", "api_key", "token", "Authorization: ", "Bearer ", "Cookie: a=", "--secret ", "://", "a:b@")
SIGNS = ("=", ": ", ":", " = ", "=>", '"', "'", "\\", '\\"', ",", " ", "\n", "{", "}", "(", "<", ">", "@", "-", ".")
VALUES = (
    "hunter2",
    "x",
    "12345678",
    GITHUB,
    "sk-",
    "eyJ",
    PEM,
    PEM_END,
    "MIIEowIBAAKCAQEAxyz",
    REDACTED,
    "call_1",
    "é",
)
tricky_text = st.lists(st.sampled_from([*NAMES, *SIGNS, *VALUES]), max_size=12).map("".join)


@given(tricky_text)
def test_redacting_twice_is_redacting_once(text: str) -> None:
    """What is redacted holds nothing more to redact."""
    once = redact(text)
    assert once == redact(once)


@given(st.dictionaries(tricky_text, st.recursive(tricky_text | st.integers(), st.lists, max_leaves=5), max_size=4))
def test_json_stays_json(value: dict[str, Any]) -> None:
    """JSON as text is valid afterwards, also when it is JSON inside JSON, and redacting values is idempotent."""
    json.loads(redact(json.dumps(value)))
    json.loads(json.loads(redact(json.dumps(json.dumps(value)))))
    once = redact(value)
    assert once == redact(once)


def test_own_patterns_are_added() -> None:
    """All that a pattern of the user matches goes, besides what the built-in ones find, and only once."""
    redactor = Redactor(patterns=[r"ACME-\d+", "[A-Z]+"])
    assert "<REDACTED> and <REDACTED>, password=<REDACTED>" == redactor.redact("ACME-123 and XYZ, password=hunter2")
    assert "<REDACTED> <REDACTED>" == redactor.redact(redactor.redact("ACME-1 ACME-2"))


@pytest.mark.parametrize(
    ("pattern", "reason"), [("(", "is no valid regular expression"), ("a*", "matches the empty text")]
)
def test_a_bad_pattern_is_refused_at_once(pattern: str, reason: str) -> None:
    """The error names the field, the pattern and the reason."""
    with pytest.raises(ConfigError) as caught:
        Redactor(patterns=["fine", pattern])
    assert str(caught.value).startswith(f"redaction.patterns[1]: {pattern!r} given; it {reason}")


HOSTILE_TEXT = (
    "password=",
    'password:"',
    '\\"token\\":\\"',
    "pwd: a\n",
    "token='\\\"",
    "password=%",
    "key",
    "\\",
    "sk-",
    "://a:",
)
HOSTILE_LINES = (
    PEM,
    PEM + "A" * 20 + "\n",
    "eyJaaaaaaaa.",
    "--secret ",
    "bearer ",
    "cookie: a",
    "authorization: basic ",
)


@pytest.mark.parametrize("piece", [*HOSTILE_TEXT, *HOSTILE_LINES])
def test_hostile_text_does_not_hang(piece: str) -> None:
    """Text made to make a pattern backtrack comes back; what it costs is a matter for the benchmarks."""
    text = (piece * (131_072 // len(piece) + 1))[:131_072]
    started = time.process_time()
    redact(text)
    assert time.process_time() - started < 5
