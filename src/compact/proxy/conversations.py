"""Which conversation a request belongs to, and which messages of it are sent.

Owns: `Conversations`: the session id of a conversation, finding a compaction of its beginning (made here or by another
proxy), and calling the manager. Must never: use a connection, or decide what is compacted.

Rules:
- A list below every limit is sent unchanged, and only its token counts are kept.
- A compaction is published under a hash of its caller and of every message it consumed. A list that begins with these
  messages gets it: branches, retries and edits of newer messages find it, and no other caller does, since the hash
  includes the credential. The longest known beginning is used.
- The first proxy that publishes a compaction of a beginning wins; the others adopt that one.
- Instructions (system, developer) are not part of the hash, only their positions: a prompt may have a clock in it.
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
from .._engine.manager import CompactManager, internals_of
from .._http.endpoints import Endpoint, window_in_refusal
from .._session.entries import Memory
from ..adapters.session_gate import Gate
from ..errors import ArchiveError
from .body import Body
from .fingerprint import conversation_digests, fold_key, limit_key, named_session, session_id_of
from .learned_windows import LearnedWindows
from .lru_cache import LruCache
from .request_tokens import RequestCounter, RequestTokens
from .state import SharedState

Kind = Literal["new", "prepared", "replayed", "recovered"]
_REMEMBERED = 10_000
"""Conversations whose session id this process remembers."""
_SMALLEST_WINDOW = 256
"""A smaller number in a refusal is not taken for a window."""


@dataclass(eq=False, slots=True, weakref_slot=True)
class ProxyExchange:
    """A request that holds a whole conversation. `credential` is a hash of its credentials."""

    endpoint: Endpoint
    body: Body
    credential: bytes
    path: str = ""
    """Its path: some providers name the model there and not in the body."""
    named: str | None = None
    """The client's name for the conversation, if it gives one."""

    @property
    def model(self) -> str | None:
        """The model in the body."""
        model = self.body.fields.get("model")
        return model if isinstance(model, str) and model else None


@dataclass(frozen=True, slots=True)
class CompactedRequest:
    """A body that is sent in place of a request's own, and the figures of its compaction."""

    content: bytes
    session: str
    step: int
    kind: Kind
    before: int
    after: int


class Conversations:
    """The conversations of all requests. Belongs to one event loop."""

    def __init__(self, manager: CompactManager, state: SharedState, upstream: str) -> None:
        self._manager = manager
        self._gate = Gate(manager)
        self._state = state
        self._upstream = upstream
        self._counter = RequestCounter(manager.config)
        never = manager.config.policy.roles_never_prune
        self._instructions = [role for role in ("system", "developer") if role in never]
        # A separate pool: a thread of it waits for a compaction, which needs a thread of the default pool to go on.
        self._shrinking = ThreadPoolExecutor(32, "compact-proxy-shrinking")
        self._begun: LruCache[bytes, str] = LruCache(_REMEMBERED)
        """The session of each list that the manager has seen, by the list's hash."""
        self._published: LruCache[str, int] = LruCache(_REMEMBERED)
        """The newest published compaction of each session."""
        self._windows = LearnedWindows(state)
        self._newest: WeakValueDictionary[str, ProxyExchange] = WeakValueDictionary()
        """The last request of each session: only its response reports the usage of the list counted last."""

    async def count(self, exchange: ProxyExchange, *, exactly: bool = False) -> RequestTokens:
        """Count a request."""
        limit = await self._windows.get(self._limit_key(exchange))
        model = exchange.model or self._manager.config.model
        return await self._counter.count(exchange.endpoint, exchange.body, model, limit, exactly=exactly)

    async def compact(self, exchange: ProxyExchange, counted: RequestTokens) -> CompactedRequest | None:
        """What to send in place of a request; None to send it unchanged."""
        chain = await self._digests(exchange)
        session, known = await self._recognise(exchange, chain)
        outgoing = await self._preflight(exchange, counted, session)
        if outgoing is exchange.body.messages:
            return None
        return await self._describe(exchange, counted, chain, session, known, outgoing)

    async def compact_refused(
        self, exchange: ProxyExchange, counted: RequestTokens, refusal: str, refused: CompactedRequest | None
    ) -> CompactedRequest | None:
        """What to send after the provider refused the request as too long; None when it cannot be made smaller.

        `refused` is what was sent in place of the request, if anything was. An empty `refusal` is about something else
        than the window.
        """
        sent, reserve = refused.after if refused else counted.total, counted.reserve or 0
        named = window_in_refusal(refusal)
        named = named if named and named >= _SMALLEST_WINDOW else None
        # Counted by us, the window may be smaller than the number named: what was refused is above it.
        asked = max(0, exchange.endpoint.reserved_output(exchange.body.fields) or 0)
        learned = min(named, sent + asked) if named else sent + reserve
        if refusal and learned > self._manager.config.policy.hard_cap_buffer:  # in a smaller one nothing is ever due
            await self._windows.learn(self._limit_key(exchange), learned)
        chain = await self._digests(exchange)
        session, known = await self._recognise(exchange, chain)
        # The provider may count more than we do.
        limit = named * 3 // 4 - min(reserve, named // 2) if named else sent
        self._newest[session] = exchange
        smaller = partial(
            self._gate.recover,
            session,
            exchange.body.messages,
            limit if limit < sent * 3 // 4 else None,
            **self._call_options(exchange),
        )
        outgoing = await asyncio.get_running_loop().run_in_executor(self._shrinking, smaller)
        if outgoing is None:
            return None
        return await self._describe(exchange, counted, chain, session, known, outgoing, recovered=True)

    def observe(self, exchange: ProxyExchange, session: str, answer: Any) -> None:
        """Observe the provider's usage, in a response or an event of its stream."""
        # A server that edits the list before the model reads it counts another list.
        if self._newest.get(session) is exchange and not exchange.body.fields.get("context_management"):
            self._gate.observe(session, exchange.endpoint.usage(answer))

    # -- calling the manager -----------------------------------------------------------------------------------------

    def _call_options(self, exchange: ProxyExchange) -> dict[str, Any]:
        return {"tools": exchange.endpoint.counted_tools(exchange.body.fields), "model": exchange.model}

    async def _preflight(self, exchange: ProxyExchange, counted: RequestTokens, session: str) -> Any:
        self._newest[session] = exchange
        return await self._gate.asend(
            session,
            exchange.body.messages,
            **self._call_options(exchange),
            reserve_output=counted.reserve,
            window=counted.window,
        )

    async def _describe(
        self,
        exchange: ProxyExchange,
        counted: RequestTokens,
        chain: list[bytes],
        session: str,
        known: Mapping[str, Any] | None,
        outgoing: Any,
        *,
        recovered: bool = False,
    ) -> CompactedRequest:
        """The compacted request to send; a new compaction is published."""
        own = set(map(id, exchange.body.messages))
        made = [message for message in outgoing if id(message) not in own]
        kind: Kind = "replayed"
        step = known["step"] if known else 0
        # A session may have branches with separate compactions: its newest need not be this list's.
        theirs = _new_messages(known) if known else []
        if known is None or not (_contains_all(made, theirs) and _contains_all(theirs, made)):
            folds = self._manager.session(session).folds
            step = folds[-1].step if folds else 0
            if folds and step != self._published.get(session):
                kind = "recovered" if recovered else "prepared" if "prepare" in folds[-1].reasons else "new"
                winner = await self._publish(exchange, session, chain, made)
                if winner is not None:
                    outgoing, step = await self._preflight(exchange, counted, session), winner["step"]
        model = exchange.model or self._manager.config.model
        after = self._counter.count_replaced(counted, exchange.endpoint, exchange.body, model, outgoing)
        content = exchange.body.with_messages(outgoing)
        return CompactedRequest(content, session, step, kind, counted.total, after)

    async def _publish(
        self, exchange: ProxyExchange, session: str, chain: list[bytes], made: Sequence[Any]
    ) -> Mapping[str, Any] | None:
        """Publish the newest compaction of a session, which made these messages. Returns the one to use in its place,
        when another proxy was first or redaction changed what is published; all proxies send the same."""
        value = await asyncio.to_thread(internals_of(self._manager).shared_fold, session)
        if value is None or not 0 < value["reach"] <= len(chain):
            return None
        signed = {Memory.signature(FORMATS[exchange.endpoint.format].read(message)) for message in made}
        if not signed.issuperset(filter(None, (one["signature"] for one in value["made"]))):
            return None  # it is a newer one, of another branch
        if not exchange.named:
            value["session_id"] = session  # a hash, which a user's redaction pattern may have changed
        ours = json.dumps(value).encode()
        winner = await self._state.claim(fold_key(chain[value["reach"] - 1]), ours)
        if winner == ours and _contains_all(made, _new_messages(value)):
            self._published.put(session, value["step"])
            return None
        fold = _parse_fold(winner)
        return fold if fold is not None and await self._adopt(session, fold) else None

    # -- which conversation ------------------------------------------------------------------------------------------

    async def _digests(self, exchange: ProxyExchange) -> list[bytes]:
        """A hash of each beginning of the list, from one message to all."""
        contents = await self._counter.content_digests(exchange.body)
        pairs = zip(exchange.body.messages, contents, strict=True)
        return conversation_digests(
            exchange.credential,
            (self._upstream, exchange.endpoint.format, exchange.named or ""),
            (b"instructions" if one.get("role") in self._instructions else content for one, content in pairs),
        )

    async def _recognise(self, exchange: ProxyExchange, chain: list[bytes]) -> tuple[str, Mapping[str, Any] | None]:
        """The session of a request, and its published compaction, which the manager then knows too."""
        found = await self._state.first([fold_key(link) for link in reversed(chain)])
        fold = _parse_fold(found[1]) if found else None
        named = named_session(exchange.named, exchange.credential) if exchange.named else None
        if fold is not None:
            session = named or fold["session_id"]  # a name that looks like a secret is redacted when published
            if self._is_known(session, fold) or await self._adopt(session, fold):
                return session, fold
        if named:
            return named, None
        session = next(filter(None, map(self._begun.get, reversed(chain))), None)
        session = session or session_id_of(chain[-1])
        self._begun.put(chain[-1], session)
        return session, None

    def _is_known(self, session: str, fold: Mapping[str, Any]) -> bool:
        """Whether the manager knows a published compaction already."""
        step = fold["step"]
        return self._published.get(session) == step and internals_of(self._manager).has_fold(session, step)

    async def _adopt(self, session: str, fold: Mapping[str, Any]) -> bool:
        """Give the manager a published compaction; False when it cannot be read, which costs a summary."""
        try:
            await internals_of(self._manager).adopt_fold(session, fold)
        except ArchiveError:
            return False
        self._published.put(session, fold["step"])
        return True

    def _limit_key(self, exchange: ProxyExchange) -> str:
        names = self._upstream, exchange.endpoint.format, exchange.path, exchange.model or ""
        return limit_key(exchange.credential, names)


def _parse_fold(value: bytes) -> dict[str, Any] | None:
    """Parse a published compaction; None when it is invalid."""
    try:
        fold = json.loads(value)
    except (ValueError, RecursionError):
        return None
    whole = isinstance(fold, dict) and isinstance(fold.get("session_id"), str) and isinstance(fold.get("step"), int)
    return fold if whole else None


def _new_messages(fold: Mapping[str, Any]) -> list[Any]:
    """The messages that a compaction made."""
    return [one["message"] for one in fold["made"]]


def _contains_all(messages: Sequence[Any], some: Sequence[Any]) -> bool:
    return all(message in messages for message in some)
