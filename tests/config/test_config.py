"""The configuration: defaults, ranges, where values come from, changes at run time, agents, and hostile files."""

from __future__ import annotations

import ast
import contextlib
import inspect
import itertools
import json
import os
import re
import textwrap
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import hostile_texts as hostile
import pytest
import yaml
from hostile_texts import no_hang
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from compact.config import AgentConfig, CompactConfig, environment_variables, window_of
from compact.config.environment import SECTIONS
from compact.config.fields import describe_field
from compact.config.sections import ClearToolOutputs, Policy, Section, StoragePolicy, SummaryPolicy
from compact.errors import CompactError, ConfigError


@pytest.fixture(autouse=True)
def _clean_environment() -> Iterator[None]:
    before = {name: os.environ.pop(name) for name in list(os.environ) if name.startswith("COMPACT_")}
    yield
    os.environ.update(before)


@contextlib.contextmanager
def environment(**variables: str) -> Iterator[None]:
    """Set variables for the length of a block."""
    os.environ.update(variables)
    try:
        yield
    finally:
        for name in variables:
            del os.environ[name]


def written(folder: Path, text: str | bytes, name: str = "compact.yaml") -> Path:
    """A configuration file with this text."""
    file = folder / name
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return file


def problem(**values: Any) -> str:
    """What the constructor says about these values."""
    with pytest.raises(ConfigError) as caught:
        CompactConfig(**values)
    return str(caught.value)


# Defaults, window and budget


@pytest.mark.spec("S28")
def test_defaults_are_those_of_the_specification() -> None:
    """Nothing configured gives the defaults that the specification lists."""
    policy = CompactConfig().policy
    assert policy.trigger_pct == 0.85
    assert policy.hard_cap_buffer == 1500
    assert policy.keep_recent_turns == 6
    assert policy.keep_tool_io_pairs == 4
    assert policy.roles_never_prune == ("system", "developer")
    assert policy.strategy == "task_state"


@pytest.mark.spec("S28")
def test_load_without_a_file_gives_the_defaults(tmp_path: Path) -> None:
    """A working directory without a configuration file is no error."""
    with contextlib.chdir(tmp_path):
        assert CompactConfig.load() == CompactConfig()


@pytest.mark.spec("S02")
def test_budget_is_the_window_less_buffer_and_output() -> None:
    """The buffer and the room for the answer are taken off the window."""
    config = CompactConfig(model="gpt-4", max_context_tokens=128_000)
    assert (config.window, config.budget) == (128_000, 126_500)
    assert config.changed(reserve_output=4_000).budget == 122_500


@pytest.mark.spec("S02")
def test_trigger_line_is_a_share_of_the_window_and_never_above_the_budget() -> None:
    """The line is exact where floats are not, and a small window lowers it to the budget."""
    assert CompactConfig(max_context_tokens=128_000).trigger_line == 108_800
    assert CompactConfig(max_context_tokens=4_000).trigger_line == 2_500
    assert CompactConfig(max_context_tokens=100, policy={"trigger_pct": 0.07, "hard_cap_buffer": 0}).trigger_line == 7
    off = CompactConfig(max_context_tokens=4_000, policy={"trigger_pct": None, "turn_threshold": 3})
    assert off.trigger_line == off.budget


@pytest.mark.spec("S02")
def test_buffer_must_leave_room_in_the_window() -> None:
    """A buffer as large as the window is refused with the sum and the window."""
    said = problem(max_context_tokens=2_000, policy={"hard_cap_buffer": 1_500, "reserve_output": 500})
    assert said.startswith("policy.hard_cap_buffer: 1500 given, 2000 tokens with reserve_output (500)")
    assert "window of 2000" in said


@pytest.mark.parametrize(
    ("model", "window"),
    [
        ("gpt-4", 8_192),
        ("gpt-4-0613", 8_192),
        ("gpt-4-turbo-2024-04-09", 128_000),
        ("gpt-4o-mini", 128_000),
        ("gpt-4.1-nano", 1_047_576),
        ("openai/gpt-5-mini", 400_000),
        ("o3", 200_000),
        ("claude-sonnet-4-5", 200_000),
        ("Gemini-2.5-pro", 1_048_576),
        ("my-own-model", 128_000),
    ],
)
def test_known_models_have_a_window(model: str, window: int) -> None:
    """The longest known beginning of a model's name decides its window."""
    assert window_of(model) == window
    assert CompactConfig(model=model).window == window


# Ranges and errors


@pytest.mark.spec("S26")
def test_an_error_names_field_path_value_and_range() -> None:
    """A value out of range is told with its path, the value and the whole range."""
    said = problem(policy={"trigger_pct": 1.7})
    assert said.startswith("policy.trigger_pct: 1.7 given; must be greater than 0 and at most 1")


@pytest.mark.spec("S26")
def test_every_problem_has_a_line_of_its_own() -> None:
    """Several mistakes are told at once, one line each."""
    said = problem(policy={"trigger_pct": 2, "strategy": "poem"}, summary={"max_tokens": 3}, storage={"adapter": "ftp"})
    assert [line.partition(":")[0] for line in said.splitlines()] == [
        "policy.trigger_pct",
        "policy.strategy",
        "summary.max_tokens",
        "storage.adapter",
    ]
    assert "one of task_state, decision_log, code_delta, brief" in said


@pytest.mark.spec("S26", "L30")
@pytest.mark.parametrize(
    ("section", "field", "bad"),
    [
        ("policy", "layout", "spiral"),
        ("policy", "trigger_pct", -0.1),
        ("policy", "trigger_pct", float("nan")),
        ("policy", "target_pct", 0),
        ("policy", "hard_cap_buffer", -1),
        ("policy", "reserve_output", -1),
        ("policy", "prepare_pct", 1),
        ("policy", "prepare_pct", 0.85),
        ("policy", "token_threshold", -1),
        ("policy", "message_threshold", 1.5),
        ("policy", "turn_threshold", "many"),
        ("policy", "keep_recent_turns", 0),
        ("policy", "keep_tool_io_pairs", 0),
        ("policy", "retention_window", 0),
        ("policy", "window_rounds", 0),
        ("policy", "roles_never_prune", "system"),
        ("policy", "on_failure", "cry"),
        ("policy", "oversized", "keep"),
        ("policy", "clear_tool_outputs", 5),
        ("summary", "provider", "me"),
        ("summary", "model", ""),
        ("summary", "max_tokens", 15),
        ("summary", "context_max_tokens", 15),
        ("summary", "temperature", 2.1),
        ("summary", "seed", "x"),
        ("summary", "prompt", 7),
        ("summary", "summary_tag", "1tag"),
        ("summary", "summary_tag", "a tag"),
        ("summary", "summary_tag", "tag\n"),
        ("summary", "max_retries", -1),
        ("summary", "timeout", 0),
        ("summary", "min_compression_ratio", 1),
        ("summary", "min_score", 101),
        ("summary", "refuse_below", -1),
        ("summary", "max_input_tokens", 0),
        ("redaction", "enabled", "perhaps"),
        ("tracing", "jsonl", ""),
        ("proxy", "upstream", "api.openai.com"),
        ("proxy", "upstream", "ftp://files.example"),
        ("proxy", "upstream", "https://user:sk-secret@api.openai.com"),
        ("proxy", "upstream", "https://api.openai.com?key=sk-secret"),
        ("proxy", "upstream", "https://api.openai.com:99999"),
        ("proxy", "upstream", "http://[::1"),
        ("proxy", "upstream", "https://api.openai.com/a b"),
        ("proxy", "state", "sk-secret"),
        ("proxy", "state", "sqlite:"),
        ("proxy", "state", "redis:sk-secret"),
        ("proxy", "state", "redis://"),
        ("proxy", "state_ttl", 0),
        ("proxy", "host", ""),
        ("proxy", "port", 65_536),
        ("proxy", "max_body", 0),
        ("proxy", "max_requests", 0),
        ("proxy", "timeout", 0),
        ("proxy", "connect_timeout", -1),
        ("proxy", "drain", -1),
    ],
)
def test_values_out_of_range_are_refused(section: str, field: str, bad: Any) -> None:
    """Each field refuses what lies outside its range, and the error names the field and what it allows."""
    said = problem(**{section: {field: bad}})
    assert said.startswith(f"{section}.{field}: ")
    assert " given; must be " in said
    assert "sk-secret" not in said


@pytest.mark.spec("T31")
@pytest.mark.parametrize(("section", "count"), [("policy", 9), ("summary", 9), ("proxy", 7)])
def test_a_boolean_is_never_a_number(section: str, count: int) -> None:
    """True and false are refused in every field that takes a number, so YAML's `no` cannot pass as 0."""
    model = SECTIONS[section]
    numbers = [
        name
        for name, field in model.model_fields.items()
        if re.search("number|at least|greater", describe_field(field))
    ]
    assert len(numbers) >= count
    for name in numbers:
        assert problem(**{section: {name: False}}).startswith(f"{section}.{name}: false given")


@pytest.mark.spec("S26")
@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"polcy": {}}, "polcy: unknown field; did you mean policy?"),
        ({"trigger_pct": 0.5}, "trigger_pct: unknown field; did you mean policy.trigger_pct?"),
        ({"policy": {"triger_pct": 0.5}}, "policy.triger_pct: unknown field; did you mean trigger_pct?"),
        ({"policy": {1: 2}}, "policy.1: unknown field; the name of a field is text"),
        ({"_env_file": "x"}, "_env_file: unknown field"),
        ({"policy": 5}, "policy: 5 given; must be a section with the fields layout, trigger_pct"),
        ({"policy": {"clear_tool_outputs": {"keep": 0}}}, "policy.clear_tool_outputs.keep: 0 given; must be a whole"),
        ({"redaction": {"patterns": ["ok", "("]}}, 'redaction.patterns[1]: "(" is not a regular expression'),
        ({"policy": MappingProxyType({"trigger_pct": 3})}, "policy.trigger_pct: 3 given; must be greater than 0"),
        ({"policy": {"trigger_pct": 10**5000}}, "policy.trigger_pct: a huge number given; must be greater than 0"),
    ],
)
def test_an_error_helps(values: dict[str, Any], said: str) -> None:
    """A misspelt, misplaced or misshapen value is told with its path and what was probably meant."""
    assert problem(**values).startswith(said)


def test_an_unknown_field_never_shows_its_value() -> None:
    """Errors travel to logs, and an unknown field may hold a key."""
    assert "sk-secret" not in problem(summary={"api_key": "sk-secret"})


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("https://api.openai.com", "https://api.openai.com"),
        ("https://api.openai.com/v1/", "https://api.openai.com"),
        ("http://127.0.0.1:8080/v1", "http://127.0.0.1:8080"),
        ("http://[::1]:8080/prefix/", "http://[::1]:8080/prefix"),
        ("https://gateway.example/v1beta/openai", "https://gateway.example/v1beta/openai"),
    ],
)
def test_an_upstream_is_kept_without_what_requests_bring(given: str, kept: str) -> None:
    """A client's base URL ends in `/v1`, and so does what people paste; it must not come twice."""
    assert kept == CompactConfig(proxy={"upstream": given}).proxy.upstream


@pytest.mark.parametrize(("length", "shown"), [(40, "x" * 40), (41, "x" * 37 + "...")])
def test_a_long_value_is_shown_shortened(length: int, shown: str) -> None:
    """Up to forty characters as it was written."""
    with pytest.raises(ConfigError, match=re.escape(f'policy.layout: "{shown}" given')):
        CompactConfig(policy={"layout": "x" * length})


def test_the_state_of_a_proxy_is_not_shown() -> None:
    """Its address may hold a password, and configurations are printed."""
    config = CompactConfig(proxy={"state": "redis://:sk-secret@redis.example:6379/0"})
    assert "sk-secret" in config.proxy.state
    assert "sk-secret" not in f"{config!r} {config} {config.proxy!r} {config.proxy}"


@pytest.mark.spec("S26")
def test_a_section_on_its_own_raises_the_same_error() -> None:
    """`Policy(...)` fails as `CompactConfig(...)` does, and both are CompactError and ValueError."""
    with pytest.raises(ConfigError, match=r"^trigger_pct: 1.7 given; must be greater than 0 and at most 1") as caught:
        Policy(trigger_pct=1.7)
    assert isinstance(caught.value, CompactError)
    assert isinstance(caught.value, ValueError)


def described(model: type[BaseModel]) -> set[str]:
    """The fields of a model that are followed by a sentence in its source."""
    (body,) = ast.parse(textwrap.dedent(inspect.getsource(model))).body
    assert isinstance(body, ast.ClassDef)
    inherited = [described(base) for base in model.__bases__ if issubclass(base, BaseModel) and base.model_fields]
    return set().union(*inherited) | {
        field.target.id
        for field, after in itertools.pairwise(body.body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
    }


def test_every_field_is_documented() -> None:
    """Each field of each section has a description and says what it allows."""
    for model in (CompactConfig, AgentConfig, ClearToolOutputs, *SECTIONS.values()):
        said = described(model)
        for name, field in model.model_fields.items():
            assert name in said, f"{model.__name__}.{name}"
            assert describe_field(field), f"{model.__name__}.{name}"


def test_configs_are_frozen() -> None:
    """Neither a configuration nor a section can be written to."""
    config = CompactConfig()
    for owner, name in ((config, "model"), (config.policy, "trigger_pct")):
        with pytest.raises(ValueError, match="frozen"):
            setattr(owner, name, "x")


# Thresholds


@pytest.mark.spec("L31")
@pytest.mark.parametrize("off", [0, None, "0", 0.0])
@pytest.mark.parametrize("field", ["trigger_pct", "token_threshold", "message_threshold", "turn_threshold"])
def test_zero_or_none_switches_a_threshold_off(field: str, off: Any) -> None:
    """0 and none mean the same: off."""
    others = {"message_threshold": 5} if field != "message_threshold" else {"turn_threshold": 5}
    assert getattr(Policy(**{**others, field: off}), field) is None


@pytest.mark.parametrize(
    ("settings", "wanted"),
    [
        ({"agents": 3}, "agents: 3 given; must be a mapping of names to sections"),
        ({"policy": {"roles_never_prune": 3}}, "policy.roles_never_prune: 3 given; must be a list of text"),
    ],
)
def test_a_mapping_and_a_list_are_asked_for_by_name(settings: dict[str, Any], wanted: str) -> None:
    """The sentence says what would do."""
    with pytest.raises(ConfigError) as caught:
        CompactConfig(**settings)
    assert wanted == str(caught.value)


@pytest.mark.spec("L01")
def test_at_least_one_threshold_is_configured() -> None:
    """A policy that could never fold is refused; any one threshold is enough."""
    assert problem(policy={"trigger_pct": 0}).startswith("policy.trigger_pct: off, and token_threshold")
    for name in ("token_threshold", "message_threshold", "turn_threshold"):
        assert getattr(Policy(**{"trigger_pct": 0, name: 7}), name) == 7


@pytest.mark.spec("L09")
def test_in_place_has_a_token_threshold_by_default() -> None:
    """60,000 for `in_place` unless the user sets it or switches it off; none for the other layouts."""
    assert Policy(layout="in_place").token_threshold == 60_000
    assert Policy(layout="in_place", token_threshold=0).token_threshold is None
    assert Policy(layout="in_place", token_threshold=None).token_threshold is None
    assert Policy(layout="in_place", token_threshold=9).token_threshold == 9
    assert Policy().token_threshold is None


@pytest.mark.spec("L09")
def test_the_default_threshold_moves_with_the_layout() -> None:
    """A default follows a changed layout; a value that was set, off included, stays."""
    config = CompactConfig()
    assert config.changed(layout="in_place").policy.token_threshold == 60_000
    assert config.changed(layout="in_place").changed(layout="rolling").policy.token_threshold is None
    assert config.changed(token_threshold=0).changed(layout="in_place").policy.token_threshold is None
    assert config.changed(token_threshold=9).changed(layout="in_place").policy.token_threshold == 9


def test_clear_tool_outputs_takes_true_false_or_a_section() -> None:
    """True means the defaults, false and none mean off."""
    assert Policy(clear_tool_outputs=True).clear_tool_outputs == ClearToolOutputs()
    assert Policy(clear_tool_outputs=False).clear_tool_outputs is None
    assert Policy(clear_tool_outputs={"keep": 5}).clear_tool_outputs == ClearToolOutputs(keep=5)
    assert (ClearToolOutputs().keep, ClearToolOutputs().exclude_tools, ClearToolOutputs().at_least) == (3, (), 0)


def test_a_layout_may_be_a_callable() -> None:
    """A user's own layout is kept as it is, also through a change."""

    def mine(messages: Any, policy: Any) -> Any:
        return messages, policy

    config = CompactConfig(policy={"layout": mine})
    assert config.changed(keep_recent_turns=2).policy.layout is mine


# Where values come from


@pytest.mark.spec("S27")
def test_the_environment_beats_the_file(tmp_path: Path) -> None:
    """COMPACT_TRIGGER_PCT=0.9 wins over the file's 0.85, and the file keeps what the environment leaves out."""
    file = written(tmp_path, "policy:\n  trigger_pct: 0.85\n  keep_recent_turns: 3\nmodel: gpt-4\n")
    with environment(COMPACT_TRIGGER_PCT="0.9", COMPACT_MODEL="gpt-5"):
        config = CompactConfig.load(file)
    assert (config.policy.trigger_pct, config.policy.keep_recent_turns, config.model) == (0.9, 3, "gpt-5")


@pytest.mark.spec("S27")
def test_arguments_beat_the_environment_field_by_field() -> None:
    """An explicit argument wins; its neighbours still come from the environment, for dicts and models alike."""
    with environment(COMPACT_TRIGGER_PCT="0.9", COMPACT_KEEP_RECENT_TURNS="2"):
        for policy in ({"trigger_pct": 0.5}, Policy(trigger_pct=0.5)):
            config = CompactConfig(policy=policy)
            assert (config.policy.trigger_pct, config.policy.keep_recent_turns) == (0.5, 2)


@pytest.mark.spec("S27")
def test_every_section_is_reachable_from_the_environment() -> None:
    """Sections carry their name in the variable; lists, switches and JSON are read."""
    with environment(
        COMPACT_STORAGE_ADAPTER="s3",
        COMPACT_SUMMARY_MAX_TOKENS="512",
        COMPACT_SUMMARY_TAG="NOTE",
        COMPACT_TRACING_CONSOLE="TRUE",
        COMPACT_REDACTION_ENABLED="no",
        COMPACT_REDACTION_PATTERNS='["a{1,3}"]',
        COMPACT_ROLES_NEVER_PRUNE="system, user",
        COMPACT_CLEAR_TOOL_OUTPUTS='{"keep": 5}',
        COMPACT_LAYOUT="rolling",
        COMPACT_COUNTER="chars",
        COMPACT_MAX_CONTEXT_TOKENS="9000",
        COMPACT_TOKEN_THRESHOLD="0",
        COMPACT_KEEP_TOOL_IO_PAIRS="",
        COMPACT_DISABLED="1",
        COMPACT_NOBODY_KNOWS="1",
        COMPACT_PROXY_UPSTREAM="https://api.anthropic.com",
        COMPACT_PROXY_STATE_TTL="60",
        COMPACT_PROXY_TOKEN="no field, so nothing that could stand in a file",
    ):
        config = CompactConfig()
    assert config.storage.adapter == "s3"
    assert (config.summary.max_tokens, config.summary.summary_tag) == (512, "NOTE")
    assert config.tracing.console is True
    assert (config.redaction.enabled, config.redaction.patterns) == (False, ("a{1,3}",))
    assert config.policy.roles_never_prune == ("system", "user")
    assert config.policy.clear_tool_outputs == ClearToolOutputs(keep=5)
    assert (config.policy.layout, config.policy.token_threshold, config.policy.keep_tool_io_pairs) == (
        "rolling",
        None,
        4,
    )
    assert (config.counter, config.window) == ("chars", 9000)
    assert (config.proxy.upstream, config.proxy.state_ttl) == ("https://api.anthropic.com", 60)


@pytest.mark.spec("S27")
def test_a_switch_in_the_environment_beats_the_file(tmp_path: Path) -> None:
    """A value in the environment replaces one of another shape in the file."""
    file = written(tmp_path, "policy: {clear_tool_outputs: true}")
    with environment(COMPACT_CLEAR_TOOL_OUTPUTS="False"):
        assert CompactConfig.load(file).policy.clear_tool_outputs is None
    with environment(COMPACT_CLEAR_TOOL_OUTPUTS='{"keep": 7}'):
        assert CompactConfig.load(file).policy.clear_tool_outputs == ClearToolOutputs(keep=7)


@pytest.mark.spec("S26", "S27")
def test_a_bad_variable_is_named(tmp_path: Path) -> None:
    """The error names the variable for its own field, and the file for the others."""
    file = written(tmp_path, "policy: {keep_recent_turns: 0, trigger_pct: 0.5}")
    with environment(COMPACT_TRIGGER_PCT="lots"), pytest.raises(ConfigError) as caught:
        CompactConfig.load(file)
    first, second = str(caught.value).splitlines()
    assert first.startswith('policy.trigger_pct: "lots" given; must be greater than 0')
    assert first.endswith("(set by COMPACT_TRIGGER_PCT)")
    assert second.startswith("policy.keep_recent_turns: 0 given")
    assert second.endswith("(in compact.yaml)")


def test_no_two_fields_share_a_variable() -> None:
    """Each field of each section has one variable."""
    fields = 3 + sum(len(model.model_fields) for model in SECTIONS.values())
    assert len(environment_variables()) == fields
    assert len(set(environment_variables().values())) == fields


@pytest.mark.spec("S26")
@pytest.mark.parametrize("name", ["compact.yaml", "compact.yml", "compact.json"])
def test_the_working_directory_is_searched(tmp_path: Path, name: str) -> None:
    """Each of the three names is found where the program runs."""
    written(tmp_path, json.dumps({"policy": {"trigger_pct": 0.5}, "storage": None}), name)
    with contextlib.chdir(tmp_path):
        assert CompactConfig.load().policy.trigger_pct == 0.5


@pytest.mark.spec("S26")
def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    """A path that was asked for must exist, and must be a file."""
    for path in (tmp_path / "absent.yaml", tmp_path):
        with pytest.raises(ConfigError, match="cannot be read"):
            CompactConfig.load(path)


# Changes at run time


@pytest.mark.spec("L30")
def test_flat_names_reach_their_sections() -> None:
    """Every parameter of L30 can be changed; `model` is the summarizer's."""
    config = CompactConfig(model="gpt-4").changed(
        max_tokens=300,
        token_threshold=1_000,
        message_threshold=20,
        turn_threshold=10,
        retention_window=8,
        model="small",
        prompt="Be brief.",
        summary_tag="NOTE",
        max_context_tokens=16_000,
        counter="chars",
        storage={"adapter": "none"},
    )
    policy, summary = config.policy, config.summary
    assert (policy.token_threshold, policy.message_threshold, policy.turn_threshold) == (1_000, 20, 10)
    assert policy.retention_window == 8
    assert (summary.max_tokens, summary.model, summary.prompt, summary.summary_tag) == (
        300,
        "small",
        "Be brief.",
        "NOTE",
    )
    assert (config.model, config.window, config.counter, config.storage.adapter) == ("gpt-4", 16_000, "chars", "none")


@pytest.mark.spec("L30")
def test_a_change_is_validated_and_leaves_the_old_config_alone() -> None:
    """A bad change raises with path and range, an unknown name with a guess, and nothing has changed."""
    config = CompactConfig()
    for change, said in (
        ({"retention_window": 0}, "policy.retention_window: 0 given; must be a whole number, at least 1"),
        ({"retention_windw": 5}, "retention_windw: unknown field; did you mean retention_window?"),
        ({"hard_cap_buffer": 200_000}, "policy.hard_cap_buffer: 200000 given"),
        ({"policy": 5, "trigger_pct": 0.5}, "policy: a value of type int given; must be a mapping"),
        ({"max_context_tokens": {}}, "max_context_tokens: a mapping given; must be a whole number, at least 1"),
    ):
        with pytest.raises(ConfigError) as caught:
            config.changed(**change)
        assert str(caught.value).startswith(said)
    assert config == CompactConfig()


@pytest.mark.spec("L30")
def test_a_change_does_not_read_the_environment_again() -> None:
    """What the environment said at the start stays, and what it says now does not count."""
    with environment(COMPACT_TRIGGER_PCT="0.9"):
        config = CompactConfig()
    with environment(COMPACT_TRIGGER_PCT="0.4", COMPACT_MODEL="gpt-5"):
        changed = config.changed(keep_recent_turns=2)
    assert (changed.policy.trigger_pct, changed.policy.keep_recent_turns, changed.model) == (0.9, 2, "gpt-4o")


@pytest.mark.spec("L30")
def test_changes_add_up() -> None:
    """A later change keeps an earlier one, also when a section is given as a dict or a model."""
    config = (
        CompactConfig(policy={"trigger_pct": 0.5}).changed(keep_recent_turns=2).changed(policy={"strategy": "brief"})
    )
    config = config.changed(summary=SummaryPolicy(max_tokens=99), max_retries=0)
    assert (config.policy.trigger_pct, config.policy.keep_recent_turns, config.policy.strategy) == (0.5, 2, "brief")
    assert (config.summary.max_tokens, config.summary.max_retries) == (99, 0)


# Agents

AGENTS = """
policy: {keep_recent_turns: 3}
agents:
  coder:
    id: c-1
    model: gpt-4-turbo
    system_prompt: You write code.
    compact: {max_tokens: 4000, token_threshold: 6000, turn_threshold: 10, message_threshold: 30, summary_tag: NOTE}
  plain:
    id: p-1
"""


@pytest.mark.spec("A2")
def test_an_agent_may_carry_its_own_block(tmp_path: Path) -> None:
    """The block lies over the base; the agent's own keys are left alone, its model too."""
    config = CompactConfig.load(written(tmp_path, AGENTS))
    coder = config.for_agent("coder")
    assert (coder.policy.layout, coder.policy.token_threshold, coder.policy.turn_threshold) == ("in_place", 6000, 10)
    assert (coder.summary.max_tokens, coder.summary.summary_tag, coder.policy.message_threshold) == (4000, "NOTE", 30)
    assert (coder.policy.keep_recent_turns, coder.model, coder.summary.model) == (3, config.model, None)
    assert config.agents["coder"].model_extra == {
        "id": "c-1",
        "model": "gpt-4-turbo",
        "system_prompt": "You write code.",
    }
    assert config.for_agent("plain") is config


@pytest.mark.spec("A2")
def test_an_agent_may_name_its_layout() -> None:
    """`in_place` is only the default of a block, and its token threshold comes with it."""
    config = CompactConfig(agents={"a": {"compact": {}}, "b": {"compact": {"layout": "rolling"}}})
    assert (config.for_agent("a").policy.layout, config.for_agent("a").policy.token_threshold) == ("in_place", 60_000)
    assert (config.for_agent("b").policy.layout, config.for_agent("b").policy.token_threshold) == ("rolling", None)


@pytest.mark.spec("A2", "L30")
def test_a_block_is_validated_with_its_path() -> None:
    """A bad block is refused when it is read, on its own and together with its base."""
    said = problem(agents={"coder": {"compact": {"max_tokens": 1, "retention": 5}}})
    assert said.splitlines() == [
        "agents.coder.compact.max_tokens: 1 given; must be a whole number, at least 16",
        "agents.coder.compact.retention: unknown field; did you mean retention_window?",
    ]
    said = problem(agents={"a": {"compact": {"hard_cap_buffer": 500_000}}})
    assert said.startswith("agents.a.compact.hard_cap_buffer: 500000 given")
    off = {"agents": {"a": {"compact": {"trigger_pct": 0, "token_threshold": 0}}}}
    assert problem(**off).startswith("agents.a.compact.trigger_pct: off, and")
    assert CompactConfig(**off, policy={"turn_threshold": 5}).for_agent("a").policy.turn_threshold == 5


@pytest.mark.spec("A2")
def test_an_unknown_agent_is_refused() -> None:
    """The error lists the agents there are."""
    with pytest.raises(ConfigError, match=r"^agents\.writer: no such agent; known are coder, plain"):
        CompactConfig(agents={"coder": {}, "plain": {}}).for_agent("writer")


@pytest.mark.spec("A2")
def test_merging_takes_the_block_whole_or_keeps_its_own() -> None:
    """The other's block replaces the whole block; without one the own block stays; other keys win when set."""
    base = AgentConfig(id="base", model="m", compact={"max_tokens": 1000, "token_threshold": 2000})
    other = AgentConfig(id="other", compact={"max_tokens": 1500, "turn_threshold": 3})
    merged = base.merge(other)
    assert merged.compact == other.compact
    assert merged.model_extra == {"id": "other", "model": "m"}
    assert base.merge(AgentConfig(id="other")).compact == base.compact
    assert AgentConfig().merge(other).compact == other.compact
    assert AgentConfig().merge(AgentConfig()).compact is None


@pytest.mark.spec("A3")
def test_the_old_transforms_entry_acts_as_compact_and_warns(tmp_path: Path) -> None:
    """`transforms: [{type: assistant}]` loads, becomes a block, and warns with the agent's name."""
    text = (
        "agents: {coder: {transforms: [{type: user}, {type: assistant, token_limit: 900, max_tokens: 64, input: x}]}}"
    )
    with pytest.warns(DeprecationWarning, match=r"agents\.coder\.transforms.*compact") as caught:
        config = CompactConfig.load(written(tmp_path, text))
    assert len(caught) == 1
    coder = config.for_agent("coder")
    assert (coder.policy.layout, coder.policy.token_threshold, coder.summary.max_tokens) == ("in_place", 900, 64)
    assert config.agents["coder"].model_extra == {"transforms": [{"type": "user"}]}


@pytest.mark.spec("A3")
def test_a_compact_block_beats_an_old_entry() -> None:
    """Where both are written the new form counts, and a change does not warn a second time."""
    both = {"compact": {"max_tokens": 99}, "transforms": [{"type": "assistant", "max_tokens": 64}]}
    with pytest.warns(DeprecationWarning, match="deprecated"):
        config = CompactConfig(agents={"a": both})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert config.changed(retention_window=9).for_agent("a").summary.max_tokens == 99
    with pytest.warns(DeprecationWarning, match="deprecated"):
        assert AgentConfig(transforms=[{"type": "assistant", "token_limit": 7}]).compact is not None


# Hostile files


@pytest.mark.spec("T31")
@pytest.mark.parametrize(("text", "said"), hostile.YAML.values(), ids=hostile.YAML)
def test_a_hostile_yaml_file_is_refused(tmp_path: Path, text: str | bytes, said: str) -> None:
    """Whatever the file holds, the answer is a ConfigError that says where; `benchmarks/traps.py` says how fast."""
    file = written(tmp_path, text)
    with no_hang(2), pytest.raises(ConfigError) as caught:
        CompactConfig.load(file)
    assert said in str(caught.value)


@pytest.mark.spec("T31")
@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param('{"policy": {"trigger_pct": 0.5, "trigger_pct": 1}}', "the key trigger_pct", id="twice"),
        pytest.param("[" * 900_000, "cannot be read as data", id="nesting"),
        pytest.param('{"policy"', "cannot be read as data", id="torn"),
        pytest.param("[1]", "must be a mapping", id="list"),
        pytest.param('{"policy": {"trigger_pct": NaN}}', "policy.trigger_pct: NaN given", id="NaN"),
        pytest.param("{" + ",".join(f'"k{i}": 1' for i in range(60_000)) + "}", "problems more", id="many keys"),
    ],
)
def test_a_hostile_json_file_is_refused(tmp_path: Path, text: str, said: str) -> None:
    """JSON is held to the same rules."""
    with pytest.raises(ConfigError, match=re.escape(said)):
        CompactConfig.load(written(tmp_path, text, "compact.json"))


def test_ordinary_aliases_and_merges_work(tmp_path: Path) -> None:
    """A few anchors are good YAML, and a merged key may be overridden."""
    text = (
        "agents:\n  a: &a {compact: &c {max_tokens: 64}}\n  b: {compact: {<<: *c, turn_threshold: 2, max_tokens: 80}}\n"
    )
    config = CompactConfig.load(written(tmp_path, text))
    assert config.for_agent("a").summary.max_tokens == 64
    assert (config.for_agent("b").summary.max_tokens, config.for_agent("b").policy.turn_threshold) == (80, 2)


# Round trips

policies = st.fixed_dictionaries(
    {},
    optional={
        "layout": st.sampled_from(["layered", "in_place", "rolling"]),
        "trigger_pct": st.floats(0.01, 1),
        "hard_cap_buffer": st.integers(0, 5_000),
        "token_threshold": st.none() | st.integers(0, 10**6),
        "keep_recent_turns": st.integers(1, 50),
        "roles_never_prune": st.lists(st.sampled_from(["system", "developer", "user"]), unique=True).map(tuple),
        "strategy": st.sampled_from(["task_state", "decision_log", "code_delta", "brief"]),
        "clear_tool_outputs": st.booleans() | st.fixed_dictionaries({"keep": st.integers(1, 9)}),
    },
)
summaries = st.fixed_dictionaries(
    {},
    optional={
        "max_tokens": st.integers(16, 10_000),
        "summary_tag": st.from_regex(r"\A[A-Za-z][A-Za-z0-9_-]{0,9}\Z"),
        "prompt": st.text(st.characters(exclude_categories=["C"]), min_size=1),
    },
)


@pytest.mark.spec("S26")
@given(policy=policies, summary=summaries)
def test_a_dumped_config_loads_as_it_was(
    tmp_path_factory: pytest.TempPathFactory, policy: dict[str, Any], summary: dict[str, Any]
) -> None:
    """Through a dict, YAML and JSON, and through an empty change, a configuration comes back equal."""
    config = CompactConfig(policy=policy, summary=summary)
    plain = config.model_dump(mode="json", exclude_unset=True)
    folder = tmp_path_factory.mktemp("config")
    assert CompactConfig(**config.model_dump()) == config
    assert CompactConfig.load(written(folder, yaml.safe_dump(plain, allow_unicode=True))) == config
    assert CompactConfig.load(written(folder, json.dumps(plain), "c.json")) == config
    assert config.changed() == config


@pytest.mark.spec("L30")
@given(first=policies, second=policies)
def test_changing_is_like_having_said_it_at_once(first: Mapping[str, Any], second: Mapping[str, Any]) -> None:
    """A change over a configuration equals one made from both, whatever was set before."""
    assert CompactConfig(policy=first).changed(**second) == CompactConfig(policy={**first, **second})


@pytest.mark.spec("S27")
@given(
    trigger=st.floats(0.01, 1),
    turns=st.integers(1, 10**6),
    roles=st.lists(st.from_regex(r"\A[a-z]{1,8}\Z"), min_size=1),
)
def test_the_environment_says_what_arguments_say(trigger: float, turns: int, roles: list[str]) -> None:
    """A value given as text in a variable is the value given in code, comma separated or JSON."""
    expected = CompactConfig(policy={"trigger_pct": trigger, "turn_threshold": turns, "roles_never_prune": roles})
    for text in (",".join(roles), json.dumps(roles)):
        with environment(
            COMPACT_TRIGGER_PCT=repr(trigger), COMPACT_TURN_THRESHOLD=str(turns), COMPACT_ROLES_NEVER_PRUNE=text
        ):
            assert CompactConfig() == expected


def test_sections_are_values() -> None:
    """Equal sections are equal and hash alike, and every section shares the rules of `Section`."""
    assert (Policy(), hash(Policy())) == (Policy(), hash(Policy()))
    assert StoragePolicy(path="x") != StoragePolicy()
    assert all(issubclass(model, Section) for model in SECTIONS.values())
