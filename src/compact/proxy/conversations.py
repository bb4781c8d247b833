"""Which conversation a request belongs to, and what of it is sent.

Owns: `Conversations`: the name of a conversation, finding a fold that was made of its beginning (here or by another
proxy), and asking the manager. Must never: touch a connection, or decide what folds.

Rules:
- A list below every line is nobody's: it is sent as it came, and nothing of it is remembered but weights.
- A fold is published under a hash of whose it is and of every message it consumed. A list that begins with these is
  given the fold: so branches, retries and edits of newer messages find it, and nobody else does, since the hash starts
  with the credential. The longest beginning that is known wins.
- The first to publish a fold of a beginning has made the one that counts; whoever comes second takes over the first's.
- Instructions (system, developer) are not part of the hash, only their places: a prompt may have a clock in it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal
from weakref import WeakValueDictionary

from .._conversation.formats import FORMATS
from .._engine.manager import CompactManager
from .._http.endpoints import Endpoint, window_named
from .._session.entries import Memory
from ..adapters._session_gate import Gate
from ..errors import ArchiveError
from .body import Body
from .fingerprint import conversation_digests, fold_key, limit_key, named_session, session_of
from .learned_windows import LearnedWindows
from .lru_cache import LruCache
from .request_tokens import RequestCounter, RequestTokens
from .state import State

__all__ = ["Conversations", "Exchange", "Folded"]

Kind = Literal["new", "prepared", "replayed", "recovered"]
_HELD = 10_000
"""Conversations of which this process remembers a name."""
_SMALLEST_WINDOW = 256
"""A smaller number in a refusal is no window."""


@dataclass(eq=False, slots=True, weakref_slot=True)
class Exchange:
    """One request with a whole conversation in it. `credential` is a hash of what it came with."""

    endpoint: Endpoint
    body: Body
    credential: bytes
    path: str = ""
    """Where it goes: some providers name the model there and not in the body."""
    named: str | None = None
    """What the client calls the conversation, when it says."""

    @property
    def model(self) -> str | None:
        """The model that is asked."""
        model = self.body.fields.get("model")
        return model if isinstance(model, str) and model else None


@dataclass(frozen=True, slots=True)
class Folded:
    """What is sent in the place of a request's body, and why."""

    content: bytes
    session: str
    step: int
    kind: Kind
    before: int
    after: int


class Conversations:
    """Every conversation that passes. Belongs to one event loop."""

    def __init__(self, manager: CompactManager, state: State, upstream: str) -> None:
        self._manager = manager
        self._gate = Gate(manager)
        self._state = state
        self._upstream = upstream
        self._counter = RequestCounter(manager.config)
        never = manager.config.policy.roles_never_prune
        self._instructions = [role for role in ("system", "developer") if role in never]
        # Threads of its own: one waits here for a fold of its session, which needs a thread itself to go on.
        self._shrinking = ThreadPoolExecutor(32, "compact-proxy-shrinking")
        self._begun: LruCache[bytes, str] = LruCache(_HELD)
        """Lists that the manager was shown, by what they consist of: the session that a fold is prepared in."""
        self._published: LruCache[str, int] = LruCache(_HELD)
        """The newest fold of each session that others can find."""
        self._windows = LearnedWindows(state)
        self._newest: WeakValueDictionary[str, Exchange] = WeakValueDictionary()
        """Whose list each session weighed last: only its answer says anything of that counted."""

    async def count(self, exchange: Exchange, *, exactly: bool = False) -> RequestTokens:
        """What a request weighs, and whether that matters."""
        limit = await self._windows.of(self._limit_key(exchange))
        model = exchange.model or self._manager.config.model
        return await self._counter.count(exchange.endpoint, exchange.body, model, limit, exactly=exactly)

    async def lighter(self, exchange: Exchange, counted: RequestTokens) -> Folded | None:
        """What to send instead of a request; None to send it as it is."""
        chain = await self._chain(exchange)
        session, known = await self._recognise(exchange, chain)
        outgoing = await self._sent(exchange, counted, session)
        if outgoing is exchange.body.messages:
            return None
        return await self._told(exchange, counted, chain, session, known, outgoing)

    async def lightest(
        self, exchange: Exchange, counted: RequestTokens, refusal: str, refused: Folded | None
    ) -> Folded | None:
        """What to send once more when the provider said that the request is too long; None when there is no way out.

        `refused` is what was sent in the place of the request, if anything was. A refusal without words is about
        something else than the window.
        """
        sent, reserve = refused.after if refused else counted.total, counted.reserve or 0
        named = window_named(refusal)
        named = named if named and named >= _SMALLEST_WINDOW else None
        # By our count the window may be smaller than its name: what was refused is above it.
        asked = max(0, exchange.endpoint.reserved(exchange.body.fields) or 0)
        learned = min(named, sent + asked) if named else sent + reserve
        if refusal and learned > self._manager.config.policy.hard_cap_buffer:  # in a smaller one nothing is ever due
            await self._windows.learn(self._limit_key(exchange), learned)
        chain = await self._chain(exchange)
        session, known = await self._recognise(exchange, chain)
        # The provider may count more than we do.
        limit = named * 3 // 4 - min(reserve, named // 2) if named else sent
        self._newest[session] = exchange
        smaller = partial(
            self._gate.smaller,
            session,
            exchange.body.messages,
            limit if limit < sent * 3 // 4 else None,
            **self._asked(exchange),
        )
        outgoing = await asyncio.get_running_loop().run_in_executor(self._shrinking, smaller)
        if outgoing is None:
            return None
        return await self._told(exchange, counted, chain, session, known, outgoing, recovered=True)

    def heard(self, exchange: Exchange, session: str, answer: Any) -> None:
        """Listen to what the provider counted, in an answer or an event of its stream."""
        # A server that edits the list before the model reads it counts another one.
        if self._newest.get(session) is exchange and not exchange.body.fields.get("context_management"):
            self._gate.observe(session, exchange.endpoint.usage(answer))

    # -- asking the manager ------------------------------------------------------------------------------------------

    def _asked(self, exchange: Exchange) -> dict[str, Any]:
        return {"tools": exchange.endpoint.weighed(exchange.body.fields), "model": exchange.model}

    async def _sent(self, exchange: Exchange, counted: RequestTokens, session: str) -> Any:
        self._newest[session] = exchange
        return await self._gate.asend(
            session,
            exchange.body.messages,
            **self._asked(exchange),
            reserve_output=counted.reserve,
            window=counted.window,
        )

    async def _told(
        self,
        exchange: Exchange,
        counted: RequestTokens,
        chain: list[bytes],
        session: str,
        known: Mapping[str, Any] | None,
        outgoing: Any,
        *,
        recovered: bool = False,
    ) -> Folded:
        """What became of a request; a fold that is new is published."""
        own = set(map(id, exchange.body.messages))
        made = [message for message in outgoing if id(message) not in own]
        kind: Kind = "replayed"
        step = known["step"] if known else 0
        # A session may have branches, each with folds of its own: its newest need not be this list's.
        if known is None or not (_all_in(_made_by(known), made) and _all_in(made, _made_by(known))):
            folds = self._manager.session(session).folds
            step = folds[-1].step if folds else 0
            if folds and step != self._published.get(session):
                kind = "recovered" if recovered else "prepared" if "prepare" in folds[-1].reasons else "new"
                winner = await self._publish(exchange, session, chain, made)
                if winner is not None:
                    outgoing, step = await self._sent(exchange, counted, session), winner["step"]
        model = exchange.model or self._manager.config.model
        after = self._counter.count_replaced(counted, exchange.endpoint, exchange.body, model, outgoing)
        content = exchange.body.carrying(outgoing)
        return Folded(content, session, step, kind, counted.total, after)

    async def _publish(
        self, exchange: Exchange, session: str, chain: list[bytes], made: Sequence[Any]
    ) -> Mapping[str, Any] | None:
        """Let others find the newest fold of a session, which made these messages. All proxies send the same: the fold
        that is ours instead, when somebody was first, or what travels was redacted."""
        value = await asyncio.to_thread(self._manager._fold_known, session)
        if value is None or not 0 < value["reach"] <= len(chain):
            return None
        signed = {Memory.signature(FORMATS[exchange.endpoint.dialect].read(message)) for message in made}
        if not signed.issuperset(filter(None, (one["signature"] for one in value["made"]))):
            return None  # it is another branch's: a newer one, made just now
        if not exchange.named:
            value["session_id"] = session  # a hash of ours, whatever it looks like to a user's pattern
        ours = json.dumps(value).encode()
        winner = await self._state.claim(fold_key(chain[value["reach"] - 1]), ours)
        if winner == ours and _all_in(_made_by(value), made):
            self._published.put(session, value["step"])
            return None
        fold = _read(winner)
        return fold if fold is not None and await self._adopt(session, fold) else None

    # -- which conversation ------------------------------------------------------------------------------------------

    async def _chain(self, exchange: Exchange) -> list[bytes]:
        """A hash of each beginning of a list, from one message to all."""
        contents = await self._counter.content_digests(exchange.body)
        pairs = zip(exchange.body.messages, contents, strict=True)
        return conversation_digests(
            exchange.credential,
            (self._upstream, exchange.endpoint.dialect, exchange.named or ""),
            (b"instructions" if one.get("role") in self._instructions else content for one, content in pairs),
        )

    async def _recognise(self, exchange: Exchange, chain: list[bytes]) -> tuple[str, Mapping[str, Any] | None]:
        """The session of a request, and the fold that is known of it, which the manager knows then too."""
        found = await self._state.first([fold_key(link) for link in reversed(chain)])
        fold = _read(found[1]) if found else None
        named = named_session(exchange.named, exchange.credential) if exchange.named else None
        if fold is not None:
            session = named or fold["session_id"]  # a name that looks like a secret was redacted in what travels
            if self._has(session, fold) or await self._adopt(session, fold):
                return session, fold
        if named:
            return named, None
        session = next(filter(None, map(self._begun.get, reversed(chain))), None)
        session = session or session_of(chain[-1])
        self._begun.put(chain[-1], session)
        return session, None

    def _has(self, session: str, fold: Mapping[str, Any]) -> bool:
        """Whether a fold that somebody published is ours already, or was adopted."""
        step = fold["step"]
        return self._published.get(session) == step and self._manager._has_fold(session, step)

    async def _adopt(self, session: str, fold: Mapping[str, Any]) -> bool:
        """Know a fold that somebody published; False when it cannot be read, which costs a summary."""
        try:
            await self._manager._aadopt_fold(session, fold)
        except ArchiveError:
            return False
        self._published.put(session, fold["step"])
        return True

    def _limit_key(self, exchange: Exchange) -> str:
        names = self._upstream, exchange.endpoint.dialect, exchange.path, exchange.model or ""
        return limit_key(exchange.credential, names)


def _read(value: bytes) -> dict[str, Any] | None:
    """A fold that somebody published."""
    try:
        fold = json.loads(value)
    except (ValueError, RecursionError):
        return None
    whole = isinstance(fold, dict) and isinstance(fold.get("session_id"), str) and isinstance(fold.get("step"), int)
    return fold if whole else None


def _made_by(fold: Mapping[str, Any]) -> list[Any]:
    """The messages that a fold made."""
    return [one["message"] for one in fold["made"]]


def _all_in(some: Sequence[Any], others: Sequence[Any]) -> bool:
    return all(message in others for message in some)
