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
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Literal, TypeVar

from .._endpoints import Endpoint, window_named
from .._manager import CompactManager
from ..adapters._gate import Gate
from ..errors import ArchiveError
from ._body import Body
from ._scales import Scales, Weight
from ._state import State

__all__ = ["Conversations", "Exchange", "Folded"]

Value = TypeVar("Value")

_HELD = 10_000
"""Conversations of which this process remembers a name or a limit."""


@dataclass(eq=False, slots=True)
class Exchange:
    """One request with a whole conversation in it. `credential` is a hash of what it came with."""

    endpoint: Endpoint
    body: Body
    credential: bytes
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
    kind: Literal["new", "prepared", "replayed", "recovered"]
    before: int
    after: int


class Conversations:
    """Every conversation that passes. Belongs to one event loop."""

    def __init__(self, manager: CompactManager, state: State, upstream: str) -> None:
        self._manager = manager
        self._gate = Gate(manager)
        self._state = state
        self._upstream = upstream
        self._scales = Scales(manager.config)
        self._begun: OrderedDict[bytes, str] = OrderedDict()
        """Lists that the manager was shown, by what they consist of: the session that a fold is prepared in."""
        self._published: OrderedDict[str, int] = OrderedDict()
        """The newest fold of each session that others can find."""
        self._limits: OrderedDict[str, int] = OrderedDict()
        self._newest: OrderedDict[str, Exchange] = OrderedDict()
        """Whose list each session weighed last: only its answer says anything of that weight."""

    async def weigh(self, exchange: Exchange, *, exactly: bool = False) -> Weight:
        """What a request weighs, and whether that matters."""
        limit = await self._limit(exchange)
        model = exchange.model or self._manager.config.model
        return await self._scales.weigh(exchange.endpoint, exchange.body, model, limit, exactly=exactly)

    async def lighter(self, exchange: Exchange, weight: Weight) -> Folded | None:
        """What to send instead of a request; None to send it as it is."""
        chain = self._chain(exchange)
        session, known = await self._recognise(exchange, chain)
        outgoing = await self._sent(exchange, weight, session)
        if outgoing is exchange.body.messages:
            return None
        return await self._told(exchange, weight, chain, session, known, outgoing)

    async def lightest(self, exchange: Exchange, weight: Weight, refusal: str, refused: Folded | None) -> Folded | None:
        """What to send once more when the provider said that the request is too long; None when there is no way out.

        `refused` is what was sent in the place of the request, if anything was.
        """
        sent, reserve, named = refused.after if refused else weight.total, weight.reserve or 0, window_named(refusal)
        # By our count the window may be smaller than its name: what was refused is above it.
        await self._learn(exchange, min(named or sent + reserve, sent + reserve))
        chain = self._chain(exchange)
        session, known = await self._recognise(exchange, chain)
        # The provider may count more than we do.
        limit = named * 3 // 4 - reserve if named else 0
        _remember(self._newest, session, exchange)
        outgoing = await asyncio.to_thread(
            self._gate.smaller,
            session,
            exchange.body.messages,
            limit if 0 < limit < sent * 3 // 4 else None,
            **self._asked(exchange),
        )
        if outgoing is None:
            return None
        return await self._told(exchange, weight, chain, session, known, outgoing, recovered=True)

    def heard(self, exchange: Exchange, session: str, answer: Any) -> None:
        """Listen to what the provider counted, in an answer or an event of its stream."""
        # A server that edits the list before the model reads it counts another one.
        if self._newest.get(session) is exchange and not exchange.body.fields.get("context_management"):
            self._gate.observe(session, exchange.endpoint.usage(answer))

    # -- asking the manager ------------------------------------------------------------------------------------------

    def _asked(self, exchange: Exchange) -> dict[str, Any]:
        return {"tools": exchange.endpoint.weighed(exchange.body.fields), "model": exchange.model}

    async def _sent(self, exchange: Exchange, weight: Weight, session: str) -> Any:
        _remember(self._newest, session, exchange)
        return await self._gate.asend(
            session,
            exchange.body.messages,
            **self._asked(exchange),
            reserve_output=weight.reserve,
            window=weight.window,
        )

    async def _told(
        self,
        exchange: Exchange,
        weight: Weight,
        chain: list[bytes],
        session: str,
        known: int,
        outgoing: Any,
        *,
        recovered: bool = False,
    ) -> Folded:
        """What became of a request; a fold that is new is published."""
        folds = self._manager.session(session).folds
        newest = folds[-1] if folds else None
        kind: Literal["new", "prepared", "replayed", "recovered"] = "replayed"
        if newest is not None and newest.step != self._published.get(session, known):
            kind = "recovered" if recovered else "prepared" if "prepare" in newest.reasons else "new"
            if not await self._published_first(session, chain, outgoing):
                outgoing = await self._sent(exchange, weight, session)
        model = exchange.model or self._manager.config.model
        after = self._scales.after(weight, exchange.endpoint, exchange.body, model, outgoing)
        content = exchange.body.carrying(outgoing)
        return Folded(content, session, newest.step if newest else 0, kind, weight.total, after)

    async def _published_first(self, session: str, chain: list[bytes], outgoing: Sequence[Any]) -> bool:
        """Let others find the newest fold of a session; False when another one is ours now: somebody was first, or
        what travels reads otherwise, because a secret in it was redacted. All proxies send the same."""
        value = self._manager._fold_known(session)
        if value is None or not 0 < value["reach"] <= len(chain):
            return True
        ours = json.dumps(value).encode()
        winner = await self._state.claim(_fold_key(chain[value["reach"] - 1]), ours)
        if winner == ours and all(one["message"] in outgoing for one in value["made"]):
            _remember(self._published, session, value["step"])
            return True
        return not await self._adopt(session, json.loads(winner))

    # -- which conversation ------------------------------------------------------------------------------------------

    def _chain(self, exchange: Exchange) -> list[bytes]:
        """A hash of each beginning of a list, from one message to all."""
        whose = "\0".join((self._upstream, exchange.endpoint.dialect, exchange.named or ""))
        total = sha256(exchange.credential + whose.encode("utf-8", "surrogatepass")).digest()
        chain = []
        for message, content in zip(exchange.body.messages, self._scales.contents(exchange.body), strict=True):
            instructions = message.get("role") in ("system", "developer")
            total = sha256(total + (b"instructions" if instructions else content)).digest()
            chain.append(total)
        return chain

    async def _recognise(self, exchange: Exchange, chain: list[bytes]) -> tuple[str, int]:
        """The session of a request, and the step of the fold that is known of it, which the manager knows then too."""
        found = await self._state.first([_fold_key(link) for link in reversed(chain)])
        fold = _read(found[1]) if found else None
        if fold is not None and (self._has(fold) or await self._adopt(fold["session_id"], fold)):
            return fold["session_id"], fold["step"]
        if exchange.named:
            return f"{exchange.named}-{exchange.credential.hex()[:8]}", 0
        session = next((self._begun[link] for link in reversed(chain) if link in self._begun), None)
        session = session or f"proxy-{chain[-1].hex()[:16]}"
        _remember(self._begun, chain[-1], session)
        return session, 0

    def _has(self, fold: Mapping[str, Any]) -> bool:
        """Whether a fold that somebody published is ours already, or was adopted."""
        session, step = fold["session_id"], fold["step"]
        return self._published.get(session) == step and self._manager._has_fold(session, step)

    async def _adopt(self, session: str, fold: Mapping[str, Any]) -> bool:
        """Know a fold that somebody published; False when it cannot be read, which costs a summary."""
        try:
            await self._manager._aadopt_fold(session, fold)
        except ArchiveError:
            return False
        _remember(self._published, session, fold["step"])
        return True

    # -- the window that a provider was heard to have ----------------------------------------------------------------

    async def _limit(self, exchange: Exchange) -> int | None:
        key = self._limit_key(exchange)
        if key not in self._limits:
            found = await self._state.first([key])
            _remember(self._limits, key, int(found[1]) if found and found[1].isdigit() else 0)
        return self._limits[key] or None

    async def _learn(self, exchange: Exchange, limit: int) -> None:
        key = self._limit_key(exchange)
        lowest = min(limit, self._limits.get(key) or limit)
        _remember(self._limits, key, lowest)
        await self._state.put(key, str(lowest).encode())

    def _limit_key(self, exchange: Exchange) -> str:
        whose = "\0".join((self._upstream, exchange.endpoint.dialect, exchange.model or ""))
        return f"limit:{sha256(exchange.credential + whose.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}"


def _fold_key(link: bytes) -> str:
    return f"fold:{link.hex()}"


def _read(value: bytes) -> dict[str, Any] | None:
    """A fold that somebody published."""
    try:
        fold = json.loads(value)
    except (ValueError, RecursionError):
        return None
    return fold if isinstance(fold, dict) and {"session_id", "step"} <= fold.keys() else None


def _remember(known: OrderedDict[Any, Value], key: Any, value: Value) -> None:
    known[key] = value
    known.move_to_end(key)
    if len(known) > _HELD:
        known.popitem(last=False)
