"""What is replayed: policies with a name, and the setting that all policies of a run share.

Owns: `Trial`, `Setting`, `Window`, and the configuration of a trial. Must never: read a log.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Self

from ..config import CompactConfig
from ..config.config import rebuild_config
from ..config.model_catalog import Caching, caching_of
from ..config.sections import LAYOUTS, TracingPolicy
from ..errors import ConfigError
from .recording import Recording

SMALLEST_WINDOW = 512
"""Tokens of the smallest window that is allowed."""
_BUFFER = 20
"""A window that the setting makes smaller gives at most one part of this many to the policy's buffer."""


@dataclass(frozen=True, slots=True)
class Window:
    """The window to replay with: so many tokens, or a share of each conversation besides its instructions."""

    tokens: int | None = None
    share: float | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """`32000`, `32k`, or `25%`."""
        match = re.fullmatch(r"\s*(\d+(?:[.,]\d+)?)\s*([kK%]?)\s*", text)
        number = float(match[1].replace(",", ".")) if match else 0.0
        if match and match[2] == "%" and 0 < number <= 100:
            return cls(share=number / 100)
        tokens = round(number * (1000 if match and match[2] in "kK" and match[2] else 1))
        if match is None or match[2] == "%" or tokens < SMALLEST_WINDOW:
            raise ConfigError(
                f"a window of {text!r} given; write tokens from {SMALLEST_WINDOW} up (32000, 32k) or a share (25%)"
            )
        return cls(tokens=tokens)

    def __str__(self) -> str:
        return f"{self.share:.0%}" if self.share is not None else f"{self.tokens:,}"


@dataclass(frozen=True, slots=True)
class Trial:
    """A policy with a name."""

    name: str
    config: CompactConfig

    @classmethod
    def load(cls, file: str) -> Self:
        """Load a configuration file, or one of the names `default`, `in_place`, `rolling`, `layered`."""
        if not Path(file).exists():
            if file == "default":
                return cls("default", CompactConfig())
            if file in LAYOUTS:
                return cls(file, CompactConfig().changed(layout=file))
        path = Path(file)
        return cls(path.stem if path.stem != "compact" else path.parent.name or path.stem, CompactConfig.load(path))

    @property
    def fingerprint(self) -> str:
        """A hash of all values that a result depends on: two trials that share it give the same results."""
        parts = self.config.model_dump(
            mode="json", include={"model", "max_context_tokens", "counter", "policy", "summary"}
        )
        return blake2b(json.dumps(parts, sort_keys=True).encode(), digest_size=8).hexdigest()


@dataclass(frozen=True, slots=True)
class Setting:
    """The settings of all trials of a run. `model` and `window` override those of the policies."""

    window: Window | None = None
    model: str | None = None
    caching: Caching | str | None = "known"
    """The provider's prices for cached input; "known" looks the model up, None is no cache."""
    prices: dict[str, tuple[float, float]] = field(default_factory=dict)

    def model_for(self, recording: Recording, config: CompactConfig) -> str:
        """The model that a conversation is replayed with."""
        return self.model or recording.conversation.model or config.model

    def caching_for(self, model: str) -> Caching | None:
        """How the model's provider caches."""
        return caching_of(model) if isinstance(self.caching, str) else self.caching

    def config_for(self, recording: Recording, trial: Trial) -> CompactConfig:
        """The configuration of one trial on one conversation, without storage and tracing."""
        config = trial.config
        model = self.model_for(recording, config)
        window = config.max_context_tokens
        if self.window is not None:
            counted = recording.count(model, config.counter)
            pinned = counted.fixed + sum(counted.tokens[i] for i in recording.pinned)
            rest = counted.fixed + sum(counted.tokens) - pinned
            window = self.window.tokens or max(SMALLEST_WINDOW, pinned + round((self.window.share or 1) * rest))
        changes = {
            "storage": {"adapter": "none"},
            "tracing": TracingPolicy().model_dump(),
            "max_context_tokens": window,
        }
        if self.window is not None and window is not None:
            changes["hard_cap_buffer"] = min(config.policy.hard_cap_buffer, window // _BUFFER)
        values = {name: change for name, change in changes.items() if change is not None}
        # Not constructed again: the environment of a remote worker must not change a result.
        return rebuild_config(config, {"model": model}).changed(**values)

    @property
    def fingerprint(self) -> str:
        """A hash of all values that a result depends on besides the trial and the conversation."""
        text = repr((self.window, self.model, self.caching, sorted(self.prices.items())))
        return blake2b(text.encode(), digest_size=8).hexdigest()
