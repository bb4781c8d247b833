"""What must hold of a session whatever goes wrong around it, judged from outside after every call.

Owns: `Seen` (one call as it looked from outside), `Judge` (every rule, and what was found). Must never: look inside a
manager. It sees the lists that went in and came out, the events, and the archive as a new process would read it.

A rule is a name: `lost` is a message that neither the list nor the archive has, `law …` is a law that a fold broke by
the word of its own record, everything else is said where it is checked.
"""

from __future__ import annotations

import json
import re
from asyncio import CancelledError
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from applications import Item, is_pinned, is_user
from fault_injection import Crash
from provider_rules import problems

from compact import CompactConfig, CompactManager, Event, History, InsufficientBudget
from compact._compaction.laws import LAWS, FoldCase
from compact._compaction.plan import Plan, Slot
from compact._conversation.formats import FORMATS
from compact._conversation.tokens import counter_for, message_tokens
from compact.config.sections import Policy
from compact.errors import ArchiveError, CompactError, SummaryError
from compact.stores import Store

__all__ = ["FOLDING", "Judge", "Seen", "key_of"]

FOLDING = ("preflight", "manual_compact", "recover")
"""The verbs that may fold."""
_TEXT = re.compile(r"\(\d+\) [a-z ]*")
_TALLY = counter_for("chars", "gpt-4")


def key_of(item: Any) -> str:
    """A message by its content."""
    return json.dumps(item, sort_keys=True)


def _content(item: Item) -> str:
    return key_of({**item, "meta": None})


@dataclass
class Seen:
    """One call as it looked from outside."""

    verb: str
    given: list[Item]
    config: CompactConfig
    keeps: bool
    """Whether the host keeps the list that came back, and has no other."""
    sound: bool
    """Whether a provider would have taken the list that came in, or all that was said."""
    window: int
    out: list[Item] | None = None
    error: BaseException | None = None
    events: Sequence[Event] = ()
    struck: Counter[str] = field(default_factory=Counter)
    plans: Sequence[tuple[Plan, Policy]] = ()
    """What was to be folded, as the process told its host before, and the policy it had then."""

    def __post_init__(self) -> None:
        self.objects, self.text = list(self.given), json.dumps(self.given)

    @property
    def budget(self) -> int:
        """What a list may weigh that goes out."""
        return self.window - self.config.policy.hard_cap_buffer

    def told(self, name: str) -> list[Event]:
        """The events of one name."""
        return [event for event in self.events if event.name == f"compact.{name}"]

    @property
    def folded(self) -> bool:
        """Whether a fold left in this call."""
        return bool(self.told("pruned_messages"))

    @property
    def repaired(self) -> bool:
        """Whether a broken list was mended in this call."""
        return any(event.data.get("code") == "repaired_history" for event in self.told("warning"))


class Judge:
    """Judges one session. `found` is what was wrong, as (rule, sentence)."""

    def __init__(self, dialect: str, session: str, store: Store, tools: Sequence[Item] | None) -> None:
        self._dialect, self._session, self._store, self._tools = dialect, session, store, tools
        plain = CompactConfig(counter="chars", max_context_tokens=1_000_000, redaction={"enabled": False})
        self._scales = CompactManager(plain, store=None, dialect=dialect)
        self._plain = plain
        self._waiting: dict[str, list[str]] = {}
        self._transcripts: dict[int, list[Any]] = {}
        self._archived: set[str] = set()
        self._mended = False
        self.found: list[tuple[str, str]] = []
        self.judged = 0
        """Folds that were judged by every law."""
        self.folds = 0

    def note(self, rule: str, wrong: Iterable[Any]) -> None:
        """Remember what a rule found."""
        if wrong := list(wrong):
            self.found.append((rule, f"{wrong[0]}" + (f", and {len(wrong) - 1} more" if len(wrong) > 1 else "")))

    # -- what was said, and where it is ------------------------------------------------------------------------------

    def said(self, items: Iterable[Item]) -> None:
        """From now on these must not be lost."""
        for item in items:
            key = key_of(item)
            if key not in self._archived:
                self._waiting[key] = _TEXT.findall(key)

    def unsaid(self, item: Item) -> None:
        """The host itself gave this message up."""
        self._waiting.pop(key_of(item), None)

    def read_archive(self) -> None:
        """Read every transcript that has come since, as a new process would."""
        with CompactManager(self._plain, store=self._store, dialect=self._dialect) as reader:
            for key in self._store.list(f"{self._session}/"):
                if (match := re.search(r"/transcript-pre-compact-(\d+)\.jsonl$", key)) is None:
                    continue
                if (step := int(match[1])) not in self._transcripts:
                    self._transcripts[step] = reader.restore(self._session, step)
                    for message in map(key_of, self._transcripts[step]):
                        self._archived.add(message)
                        self._waiting.pop(message, None)

    def lost(self, there: Sequence[Item]) -> None:
        """Every message that was ever said is in this list or in the archive; a mended one is there in other words."""
        keys = {key_of(item) for item in there}
        missing = [(key, texts) for key, texts in self._waiting.items() if key not in keys]
        if missing:
            told = "\n".join((*keys, *self._archived)) if self._mended else ""
            self.note("lost", [key for key, texts in missing if not texts or not all(text in told for text in texts)])

    def last_look(self, whole: Sequence[Item], there: Sequence[Item]) -> None:
        """The archive once more from its first byte: as it was, and with what the list has not."""
        before, self._transcripts, self._archived, self._waiting = self._transcripts, {}, set(), {}
        self.said(whole)
        self.read_archive()
        self.lost(there)
        self.note("rewritten", [step for step, old in before.items() if self._transcripts.get(step) != old])
        if self._transcripts:
            with CompactManager(self._plain, store=self._store, dialect=self._dialect) as reader:
                self.note("verify", reader.verify(self._session).problems)

    def restored(self, step: int | None, messages: Sequence[Any]) -> None:
        """What `restore` gives is what the archive has; which is the newest may change while it is looked for."""
        self.read_archive()
        expected = list(self._transcripts.values()) if step is None else [self._transcripts[step]]
        self.note("restore", [] if messages in expected else [f"step {step} is not what was archived"])

    # -- one call ----------------------------------------------------------------------------------------------------

    def call(self, seen: Seen) -> None:
        """Judge one call by every rule."""
        same = len(seen.given) == len(seen.objects) and all(
            a is b for a, b in zip(seen.given, seen.objects, strict=True)
        )
        self.note("mutated", [] if same and json.dumps(seen.given) == seen.text else ["the host's list has changed"])
        self._mended |= seen.repaired
        self.folds += len(seen.told("pruned_messages"))
        broken = [e.data["message"] for e in seen.told("error") if e.data["error_type"] == "LawViolation"]
        self.note("law broken", broken)
        self.read_archive()
        if seen.error is not None:
            self._error(seen, seen.error)
        elif seen.out is not None and seen.verb in FOLDING:
            self._list(seen, seen.out)
        if seen.keeps or (seen.out is not None and seen.verb in FOLDING):
            self.lost(seen.given if seen.out is None else seen.out)

    def weight(self, messages: Sequence[Item]) -> int:
        """What a list weighs, by a manager that never saw it."""
        return self._scales.should_compact("nobody", messages, tools=self._tools).usage.total

    def _error(self, seen: Seen, error: BaseException) -> None:
        kinds = {name.rpartition(" ")[2] for name in seen.struck}
        store = any("refused" in name for name in seen.struck)
        raises = seen.config.policy.on_failure == "raise"
        folding = seen.verb in FOLDING
        # What mending a broken list would add counts as well, and nobody outside can tell how much that is.
        whole = seen.verb != "recover" and not problems(self._dialect, seen.given)
        fits = folding and whole and self.weight(seen.given) <= seen.budget
        said = f"{seen.verb} raised {type(error).__name__}: {error}"
        if isinstance(error, Crash | KeyboardInterrupt | CancelledError):
            expected = {Crash: "crash", KeyboardInterrupt: "interrupt", CancelledError: "cancel"}[type(error)] in kinds
        elif isinstance(error, InsufficientBudget):
            expected = folding and error.needed > error.budget and not (fits and not raises and seen.keeps)
            expected |= seen.verb == "recover"
        elif isinstance(error, ArchiveError):
            expected = store and (not fits or raises) if folding else True
        elif isinstance(error, SummaryError):
            expected = folding and (raises or not fits)
        else:
            expected = not folding and type(error) is CompactError
        self.note("error", [] if expected else [said])

    def _list(self, seen: Seen, out: list[Item]) -> None:
        ids, keys = {id(item) for item in seen.given}, {key_of(item) for item in seen.given}
        there = {id(item) for item in out}
        if seen.folded or seen.sound:
            self.note("valid", problems(self._dialect, out))
        self.note("pins", [item for item in seen.given if is_pinned(item) and id(item) not in there])
        strange = [item for item in out if id(item) not in ids and key_of(item) in keys and _TEXT.search(key_of(item))]
        self.note("not the object", strange)
        weight = self.weight(out)
        self.note("budget", [f"{weight} of {seen.budget}"] if weight > seen.budget else [])
        if seen.verb == "recover":
            self.note("recover", [] if weight < self.weight(seen.given) else ["a list that did not shrink"])
        made = json.dumps([item for item in out if id(item) not in ids])
        self.note("rubbish", ["an answer that is no summary went into the list"] if "REFUSE-ME" in made else [])
        if not seen.folded:
            return
        records = [e.data["key"] for e in seen.told("archival") if "/summary-" in e.data["key"]]
        if records:
            self._laws(seen, out, json.loads(self._store.get(records[-1])))
        else:
            self.note("unrecorded", ["a fold left, and the archive has no record of it"])

    # -- the laws ----------------------------------------------------------------------------------------------------

    def _laws(self, seen: Seen, out: list[Item], record: dict[str, Any]) -> None:
        """Judge a fold by every law, from its transcript, its record, and the plan that the host was told."""
        before = self._transcripts.get(record["step"])
        if before is None or len(before) < len(record["positions"]):
            self.note("lost", [f"the transcript of step {record['step']}, or a part of it"])
            return
        slots = record["left"]
        left = [before[slot] if isinstance(slot, int) else record["made"][slot["made"]]["message"] for slot in slots]
        # A fold made ahead leaves with the host's messages as they are by now, pinned or mended since.
        same = list(map(_content, left)) == list(map(_content, out[: len(left)]))
        same |= seen.repaired and len(left) < len(out)
        self.note("record", [] if same else [f"step {record['step']} left another list than its record says"])
        if record["layout"] == "in_place" and not seen.repaired:
            keys = {key_of(item) for item in left}
            self.note("users", [item for item in before if is_user(item) and key_of(item) not in keys])
        dialect = FORMATS[self._dialect]
        messages = [dialect.read(raw) for raw in before]
        if dialect.problems(messages):
            return  # the plan was made of a list that was mended first
        # Without a new summary the earlier one stays, although it was to fold.
        earlier, gone = frozenset(record["earlier_summaries"]), frozenset(record["gone"])
        fitting = [
            (plan, policy)
            for plan, policy in seen.plans
            if plan.size == len(before) and gone - earlier == (plan.folded | {c.index for c in plan.clips}) - earlier
        ]
        if not fitting:
            self.note("unplanned", [f"step {record['step']} folded what no plan had said"])
            return
        plan, policy = fitting[-1]
        after = [dialect.read(raw) for raw in left]
        folds = iter(plan.folds)
        sources: list[Slot | None] = []
        summaries: set[int] = set()
        for number, slot in enumerate(slots):
            kept = isinstance(slot, int)
            is_summary = slot in earlier if kept else record["made"][slot["made"]]["summary"]
            summaries |= {number} if is_summary else set()
            sources.append(next(folds, None) if is_summary and not kept else None)
        roles = frozenset(policy.roles_never_prune)
        case = FoldCase(
            before=History(messages, record["tokens"], record["positions"], earlier, roles),
            plan=plan,
            after=History(after, [message_tokens(m, _TALLY) for m in after], None, frozenset(summaries), roles),
            sources=tuple(sources),
            policy=policy,
            fixed=record["tokens_before"] - sum(record["tokens"]),
            budget=record["budget"],
            allowance=seen.config.summary.max_tokens + 40,
            problems=tuple(problems(self._dialect, left)),
        )
        for law in LAWS:
            wrong = law.broken(case)
            self.note(f"law {law.id}", [] if wrong is None else [wrong])
        self.judged += 1
