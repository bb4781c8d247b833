"""The policy that a search chose, as a commented configuration file.

Owns: `config_text`. Must never: search, or write to a disk.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..config.environment import SECTIONS
from .trial import Setting
from .tune import TuningResult


def config_text(tuned: TuningResult, setting: Setting) -> str:
    """A `compact.yaml` with the chosen values, and comments with the measured effect of each."""
    return "\n".join([*_comment_lines(tuned, setting), *_setting_lines(tuned), ""])


def _comment_lines(tuned: TuningResult, setting: Setting) -> Iterator[str]:
    trained = tuned.trained
    window = f"a window of {setting.window}" if setting.window else "the window of the configuration"
    if setting.window is not None and setting.window.share is not None:
        window += " of each conversation"
    summaries = tuned.start.config.summary.provider
    yield f"# Chosen by `compact tune` on {trained.chosen.conversations:,} conversations, with {window}, the prices of"
    model = setting.model or "the model of each conversation"
    yield f"# {model}, and summaries by {summaries}; {len(tuned.tried):,} policies were tried on all of them."
    if summaries == "extract":
        yield "# A model that writes the summaries costs money at every compaction: then tune again, with that model."
    if tuned.found:
        yield f"# {_sentence(str(trained))}"
    else:
        yield "# None was better than the start of the search, which is what this file holds."
    yield "#"
    if tuned.held:
        yield "# On conversations that were held back from the search:"
        yield from (f"#   {verdict}" for verdict in tuned.held)
    else:
        yield "# There were too few conversations to hold any back: the effect on others is not known."
    worse = [verdict.source for verdict in tuned.held if tuned.found and not verdict.better]
    if worse:
        yield f"# It is not better on {', '.join(worse)}: keep your configuration there."


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + "."


def _setting_lines(tuned: TuningResult) -> Iterator[str]:
    import yaml  # here, because only this function needs it

    reasons = {reason.name: reason for reason in tuned.reasons}
    values = tuned.chosen.config.model_dump(mode="json", exclude_unset=True)
    for name, value in values.items():
        if name not in SECTIONS:
            yield from yaml.safe_dump({name: value}, sort_keys=False).splitlines()
            continue
        if not value:
            continue
        yield f"{name}:"
        for key, one in value.items():
            if key in reasons:
                yield f"  # {reasons[key]}"
            elif key == "layout" and "layout" in tuned.changes:
                yield "  # The layouts have different fields, so the effect of the layout alone is not known."
            yield from (f"  {line}" for line in _yaml_lines(yaml, key, one))


def _yaml_lines(yaml: Any, key: str, value: Any) -> list[str]:
    return list(yaml.safe_dump({key: value}, sort_keys=False).splitlines())
