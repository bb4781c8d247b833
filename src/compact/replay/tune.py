"""The search for a better policy.

Owns: `tune`: which policies are tried on which conversations, and what counts as better.
Must never: print, or write a file besides the results.

- Every third conversation of each source is held back, and is not used before the search is over.
- Candidates are drawn at random from a seed and tried on a few conversations; the best are tried on all, and then
  their neighbours. The chosen one must be no worse than the start on cost and on fidelity, whichever fifth of the
  conversations is left out, and better on one.
- Then every changed field is reset alone. A field that makes no difference is dropped; for the others the file states
  the measured difference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from ..config import CompactConfig
from ..errors import ConfigError
from ..importers import Conversation
from .comparison import Sums, group_of
from .executors import Engine, in_process
from .lab import replay
from .results import Result
from .search_space import Changes, changed_fields, draw, neighbours, value_of
from .trial import Setting, Trial

START = "start"
FEW = 6
"""Conversations that all candidates are tried on first."""
_SURVIVORS = 6
"""Half of the candidates that are tried on all conversations, and of their neighbours in each round."""
_ROUNDS, _PARENTS = 4, 3
"""How often neighbours of the best are tried, and of how many of them."""
_FOLDS = 5
_ENOUGH = 1e-9


@dataclass(frozen=True, slots=True)
class Verdict:
    """Cost and fidelity of the chosen policy, compared with the start on some conversations."""

    source: str
    start: Sums
    chosen: Sums

    @property
    def cheaper(self) -> float:
        """The share of the cost that is saved; negative when it costs more."""
        assert self.start.cost is not None
        assert self.chosen.cost is not None
        return 1 - self.chosen.cost / self.start.cost if self.start.cost else 0.0

    @property
    def kept(self) -> float:
        """The gain in fidelity."""
        return (self.chosen.fidelity or 0.0) - (self.start.fidelity or 0.0)

    @property
    def better(self) -> bool:
        """Whether it is better on one, and no worse on the other."""
        worst, best = sorted((self.cheaper, self.kept))
        return worst > -_ENOUGH and best > _ENOUGH

    def __str__(self) -> str:
        money = f"{abs(self.cheaper):.1%} {'cheaper' if self.cheaper >= 0 else 'dearer'}"
        facts = f"fidelity {self.start.fidelity or 0:.3f} → {self.chosen.fidelity or 0:.3f}"
        verdict = "better" if self.better else "the same" if not (self.cheaper or self.kept) else "not better"
        return f"{self.source}: {verdict} on {self.chosen.conversations} conversations ({money}, {facts})"


@dataclass(frozen=True, slots=True)
class Reason:
    """A changed field, and the effect of resetting it on the training conversations."""

    name: str
    value: object
    instead: object
    cheaper: float
    """The share of the cost that resetting it saves; negative when that costs more."""
    kept: float
    """The fidelity that resetting it gains."""

    def __str__(self) -> str:
        money = f"{abs(self.cheaper):.1%} {'cheaper' if self.cheaper > 0 else 'dearer'}"
        return f"with {self.instead}: {money}, fidelity {self.kept:+.3f}"


@dataclass
class TuningResult:
    """The outcome of a search."""

    start: Trial
    chosen: Trial
    changes: Changes
    reasons: list[Reason]
    trained: Verdict
    held: list[Verdict]
    """One for each source with conversations held back."""
    tried: dict[str, tuple[Changes, float, float]] = field(default_factory=dict)
    """Candidates that were tried on all training conversations: cost and fidelity."""

    @property
    def found(self) -> bool:
        """Whether anything better was found."""
        return bool(self.changes)


def tune(
    conversations: Iterable[Conversation],
    setting: Setting | None = None,
    *,
    start: CompactConfig | None = None,
    engine: Engine = in_process,
    candidates: int = 48,
    seed: int = 42,
    folder: Path | None = None,
    progress: Callable[[str, int], None] | None = None,
) -> TuningResult:
    """Search for a policy that costs less or keeps more than `start` on these conversations, and no worse."""
    setting, config = setting or Setting(), start if start is not None else CompactConfig()
    training, held = _split(list(conversations))
    if not training:
        raise ConfigError("no conversation to tune on; name logs that hold at least one")
    with TemporaryDirectory() as scratch:
        # One file of results for all stages: results of one stage are reused in the next.
        search = _Search(config, setting, engine, folder or Path(scratch), progress or (lambda stage, share: None))
        changes = search.best(training, candidates, Random(seed))  # noqa: S311 - a search, not a secret
        changes, reasons = search.explain(changes, training)
        chosen = Trial("tuned", config.changed(**changes))
        verdicts = search.verdicts([*training, *held], chosen)
    on_training = {id(c) for c in training}
    return TuningResult(
        start=Trial(START, config),
        chosen=chosen,
        changes=changes,
        reasons=reasons,
        trained=_verdict("training", [pair for c, pair in verdicts if id(c) in on_training]),
        held=[
            _verdict(
                source, [pair for c, pair in verdicts if id(c) not in on_training and group_of(c.source) == source]
            )
            for source in dict.fromkeys(group_of(c.source) for c in held)
        ],
        tried=search.tried,
    )


def _split(conversations: Sequence[Conversation]) -> tuple[list[Conversation], list[Conversation]]:
    """Training and held back conversations: every third of each source is held back, in order of length."""
    groups: dict[str, list[Conversation]] = {}
    for conversation in conversations:
        groups.setdefault(group_of(conversation.source), []).append(conversation)
    training: list[Conversation] = []
    held: list[Conversation] = []
    for group in groups.values():
        for number, conversation in enumerate(sorted(group, key=lambda one: (len(one.messages), one.id))):
            (held if number % 3 == 1 else training).append(conversation)
    return training, held


Pair = tuple[Result, Result]
"""A conversation under the start and under a candidate."""


class _Search:
    """Runs candidates and compares them with the start."""

    def __init__(
        self, start: CompactConfig, setting: Setting, engine: Engine, folder: Path, progress: Callable[[str, int], None]
    ) -> None:
        self.start, self.setting, self.engine, self.folder, self.progress = start, setting, engine, folder, progress
        self.tried: dict[str, tuple[Changes, float, float]] = {}

    def best(self, training: list[Conversation], candidates: int, random: Random) -> Changes:
        """The best candidate, or no change."""
        drawn = _distinct([draw(random) for _ in range(candidates)])
        survivors = drawn
        if len(training) > FEW:
            few = [training[i * (len(training) - 1) // (FEW - 1)] for i in range(FEW)]
            survivors = _rank(drawn, self._run(few, drawn, "draws"))[: 2 * _SURVIVORS]
        pairs = dict(zip(map(repr, survivors), self._run(training, survivors, "survivors"), strict=True))
        known = list(survivors)
        for _ in range(_ROUNDS):
            top = _rank(known, [pairs[repr(one)] for one in known])[:_PARENTS]
            near = _distinct([one for parent in top for one in neighbours(parent)], known)
            random.shuffle(near)
            near = near[: min(2 * _SURVIVORS, candidates)]
            pairs |= zip(map(repr, near), self._run(training, near, "neighbours"), strict=True)
            known += near
        for number, one in enumerate(known):
            sums = _sum_results(result for _, result in pairs[repr(one)])
            self.tried[f"{number:02}"] = changed_fields(self.start, one), sums.cost or 0.0, sums.fidelity or 0.0
        good = [one for one in known if _gain(pairs[repr(one)]) > _ENOUGH]
        return changed_fields(self.start, max(good, key=lambda one: _gain(pairs[repr(one)]))) if good else {}

    def explain(self, changes: Changes, training: list[Conversation]) -> tuple[Changes, list[Reason]]:
        """The changes that make a difference, and their effects."""
        while True:
            without = {name: {k: v for k, v in changes.items() if k != name} for name in changes if name != "layout"}
            runs = self._run(training, [*without.values(), changes], "reasons")
            whole = _sum_results(result for _, result in runs[-1])
            reasons = []
            for name, run in zip(without, runs, strict=False):
                verdict = Verdict("", whole, _sum_results(result for _, result in run))
                instead = value_of(self.start.changed(**without[name]), name)
                reasons.append(Reason(name, changes[name], instead, verdict.cheaper, verdict.kept))
            idle = [one.name for one in reasons if abs(one.cheaper) < _ENOUGH and abs(one.kept) < _ENOUGH]
            if not idle:
                return changes, reasons
            changes = without[idle[0]]

    def verdicts(self, conversations: list[Conversation], chosen: Trial) -> list[tuple[Conversation, Pair]]:
        """Each conversation under the start and under the chosen policy."""
        trials = [Trial(START, self.start), chosen]
        with replay(conversations, trials, self.setting, engine=self.engine, folder=self.folder) as lab:
            return [(c, (a, b)) for c, (a, b) in zip(conversations, lab, strict=True)]

    def _run(self, conversations: list[Conversation], candidates: Sequence[Changes], stage: str) -> list[list[Pair]]:
        """Run candidates; returns the pairs of each."""
        trials = [Trial(START, self.start)]
        trials += [Trial(f"c{n}", self.start.changed(**changes)) for n, changes in enumerate(candidates)]

        def report(done: int, known: int) -> None:
            self.progress(stage, done * 100 // max(1, len(conversations) * len(trials)))

        with replay(
            conversations, trials, self.setting, engine=self.engine, folder=self.folder, progress=report
        ) as lab:
            rows = list(lab)
        return [[(row[0], row[n + 1]) for row in rows] for n in range(len(candidates))]


def _distinct(candidates: Iterable[Changes], known: Iterable[Changes] = ()) -> list[Changes]:
    seen = {repr(one) for one in known}
    return [one for one in candidates if repr(one) not in seen and not seen.add(repr(one))]  # type: ignore[func-returns-value]


def _rank(candidates: Sequence[Changes], runs: Sequence[list[Pair]]) -> list[Changes]:
    """Sort by gain, the best first."""
    order = sorted(range(len(candidates)), key=lambda n: -_gain(runs[n]))
    return [candidates[n] for n in order]


def _gain(pairs: Sequence[Pair]) -> float:
    """The gain on cost and fidelity together, on the worst subset of the conversations.

    Negative when it loses on one of them in any subset: trading one for the other does not count as better.
    """
    parts = [[pair for n, pair in enumerate(pairs) if n % _FOLDS != left] for left in range(min(_FOLDS, len(pairs)))]
    return min(_gain_of(part) for part in [*parts, pairs] if part)


def _gain_of(pairs: Sequence[Pair]) -> float:
    verdict = _verdict("", pairs)
    worst, best = sorted((verdict.cheaper, verdict.kept))
    # Among those that lose, one that loses little and gains much is the best start for neighbours.
    return worst + best if worst > -_ENOUGH else min(worst, 10 * worst + best)


def _verdict(source: str, pairs: Sequence[Pair]) -> Verdict:
    return Verdict(source, _sum_results(start for start, _ in pairs), _sum_results(chosen for _, chosen in pairs))


def _sum_results(results: Iterable[Result]) -> Sums:
    sums = Sums("")
    for result in results:
        if result.error is not None:
            raise ConfigError(f"{result.conversation} cannot be replayed: {result.error}; leave it out")
        sums.add(result)
    if sums.cost is None:
        raise ConfigError(
            "the price of the model is not known, so costs cannot be compared; name a listed model with --model"
        )
    return sums
