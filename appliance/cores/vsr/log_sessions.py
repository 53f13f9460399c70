"""The log sessions of one process: owners ask, replicas answer, and time passes; a driver performs.

    replicas  on_connected, on_gone, on_message ──▶ ┌──────────┐ ──SEND──────▶ a link
    time      on_ticks, go_on ────────────────────▶ │ sessions │ ──REPLY ...─▶ an owner
    owners    request, ask, withdraw ─────────────▶ └──────────┘

What is to be done comes as rows. After each event, or after some that belong together, the driver
takes them all (`take_effects`) and performs them in their order:

    (SEND, link, header, body)           now or never; `link` is what `on_connected` was given
    (REGISTERED, session)                the group knows it, for the first time or anew
    (REPLY, session, results, header)    of the last `request` or `ask`
    (EVICTED, session, reason, told)     it registers anew by itself; what was requested is lost
    (READY, session)                     tell whoever fills its queue that it takes a request now
    (WAIT, session, wait_ns)             call `on_waited` after that, then `go_on`

A session has one request under way. An owner that keeps what it has asked until it is answered, as
it has a queue, uses `request`, when the session is ready. One that has a single thing to ask uses
`ask`: that waits for the session, and goes out again under the next one if this one is lost. It
does not (`asked` is None from the EVICTED on) if the request itself is what ended the session, or
if it may have been committed and its owner said that it must not be twice.
"""

from collections.abc import Iterator
from typing import Any, Protocol

from appliance.cores.vsr.client import Client
from appliance.cores.vsr.evictions import EVICTIONS_LASTING
from appliance.cores.vsr.pace import Pace
from appliance.formats.command import client_of
from appliance.formats.envelope import Message
from appliance.formats.group import Configuration

SEND, REGISTERED, REPLY, EVICTED, READY, WAIT = range(6)


class Queue(Protocol):
    """What collects behind a session whose requests are paced."""

    ready: bool  # whoever fills it knows that the session takes a request

    @property
    def depth(self) -> int:
        """Records that wait or are under way."""


class LogSession:
    """One of them. `group` names those with which it shares links: sessions of one process with one
    shard. `relay` is the link to a replica that passes on what is for others."""

    __slots__ = (
        *("client", "group", "links", "relay", "owner", "queue", "pace"),
        *("asked", "wanted", "again", "waits"),
    )

    def __init__(
        self,
        client: Client,
        group: int,
        links: dict[bytes, Any],
        *,
        owner: Any,
        queue: Queue | None,
        relay: Any,
    ) -> None:
        assert group >= 0
        self.client, self.group, self.owner = client, group, owner
        self.links, self.relay = links, relay
        self.queue, self.pace = queue, Pace(client.geometry.records_max)
        self.asked: tuple[int, bytes, int] | None = None  # operation, body, records: not answered
        self.wanted = False  # somebody waits for the reply to what is under way
        self.again = True  # what is asked may be committed twice
        self.waits = False  # a WAIT of it is not over

    @property
    def ready(self) -> bool:
        """It is registered, and has no request under way."""
        return self.client.ready


class LogSessions:
    """All of them, in the order in which they were opened. A tick of theirs is `ticks_each` of
    those that `on_ticks` counts."""

    def __init__(self, *, ticks_each: int = 1) -> None:
        assert ticks_each >= 1
        self._ticks, self._ticks_each = 0, ticks_each
        self._by_client: dict[bytes, LogSession] = {}
        self.groups: dict[int, list[LogSession]] = {}  # each in the order of opening
        self._paced: list[LogSession] = []  # those with a queue
        # group -> replica id -> the link to it, while it is connected
        self._links: dict[int, dict[bytes, Any]] = {}
        self.effects: list[tuple[Any, ...]] = []  # what is to be done, in this order

    def open(
        self,
        client: Client,
        *,
        group: int = 0,
        owner: Any = None,
        queue: Queue | None = None,
        relay: Any = None,
    ) -> LogSession:
        """A new session, connected to whom its group is connected to. `queue`: it is paced."""
        assert client.client_id not in self._by_client
        links = self._links.setdefault(group, {})
        session = LogSession(client, group, links, owner=owner, queue=queue, relay=relay)
        assert session.links is links
        self._by_client[client.client_id] = session
        self.groups.setdefault(group, []).append(session)
        if queue is not None:
            self._paced.append(session)
        for replica_id in client.members:
            if replica_id in links:
                client.on_connected(replica_id)
        self._collect(session)
        return session

    def close(self, session: LogSession) -> None:
        """Forget a session; what it has under way may still be committed."""
        assert self._by_client[session.client.client_id] is session
        assert session in self.groups[session.group]
        del self._by_client[session.client.client_id]
        self.groups[session.group].remove(session)
        if session.queue is not None:
            self._paced.remove(session)

    def take_effects(self) -> list[tuple[Any, ...]]:
        """All that is to be done."""
        effects, self.effects = self.effects, []
        return effects

    # --- how they are

    def has_session(self, group: int) -> bool:
        """Whether the group of replicas has answered: one of ours is registered with it."""
        return any(session.client.session for session in self.groups[group])

    def configurations(self) -> Iterator[tuple[int, Configuration | None]]:
        """What groups of replicas have told our sessions of themselves, each with its group."""
        for session in self._by_client.values():
            yield session.group, session.client.configuration

    @property
    def are_busy(self) -> bool:
        """Whether any has a request under way, or something to ask."""
        return any(
            session.client.in_flight is not None
            or (session.queue is not None and session.queue.depth)
            for session in self._by_client.values()
        )

    # --- replicas

    def on_connected(self, group: int, replica_id: bytes, link: Any) -> None:
        """This replica can be reached by `link`, until it is gone."""
        self._links.setdefault(group, {})[replica_id] = link
        for session in self.groups.get(group, ()):
            session.client.on_connected(replica_id)
            self._collect(session)

    def on_gone(self, group: int, replica_id: bytes) -> None:
        """A connection to this replica has ended, or failed before it was open."""
        self._links.get(group, {}).pop(replica_id, None)
        for session in self.groups.get(group, ()):
            session.client.on_disconnected(replica_id)
            self._collect(session)

    def on_message(self, group: int, message: Message) -> bool:
        """A replica says something; False: to nobody here."""
        session = self._by_client.get(client_of(message))
        if session is None or session.group != group:
            return False
        session.client.on_message(message)
        self._collect(session)
        return True

    def ask_all(self) -> None:
        """Ask everybody who is connected how their group is now."""
        for session in self._by_client.values():
            session.client.ask_all()
            self._collect(session)

    # --- time

    def on_ticks(self, ticks: int) -> None:
        """So many have passed."""
        assert ticks >= 0
        before, self._ticks = self._ticks // self._ticks_each, self._ticks + ticks
        due = self._ticks // self._ticks_each - before
        assert due >= 0
        for session in self._by_client.values():
            for _ in range(due):
                session.client.on_tick()
            self._collect(session)

    def go_on(self, now_ns: int) -> None:
        """READY for those whose next request may leave, as enough has collected; WAIT for others
        in which something has."""
        for session in self._paced:
            queue = session.queue
            assert queue is not None
            if queue.ready or not session.client.ready:
                continue
            waiting = queue.depth
            assert waiting >= 0
            if session.pace.may_ask(now_ns, waiting):
                self.effects.append((READY, session))
            elif waiting and not session.waits:
                session.waits = True
                self.effects.append((WAIT, session, session.pace.until_ns - now_ns))

    def on_waited(self, session: LogSession) -> None:
        """The time of its WAIT is over."""
        assert session.waits
        session.waits = False

    # --- owners

    def request(
        self,
        session: LogSession,
        operation: int,
        body: bytes | bytearray | memoryview,
        count: int,
    ) -> None:
        """Send `count` records under a session that is ready."""
        assert session.client.ready
        assert count >= 0
        session.wanted = True
        session.client.request(operation, body, count)
        self._collect(session)

    def request_paced(
        self, session: LogSession, operation: int, body: memoryview, count: int, now_ns: int
    ) -> None:
        """The same of one with a queue, out of the queue's own memory: `Client.request_uncopied`
        says what it owes."""
        assert session.queue is not None
        assert session.client.ready
        assert count > 0
        session.wanted = True
        session.client.request_uncopied(operation, body, count)
        session.pace.on_request(now_ns, count)
        self._collect(session)

    def on_answered(self, session: LogSession, now_ns: int) -> int:
        """What collects for a session was given its REPLY; the nanoseconds since the request."""
        assert session.queue is not None
        return session.pace.on_reply(now_ns, session.queue.depth)

    def ask(
        self, session: LogSession, operation: int, body: bytes, count: int, *, again: bool = True
    ) -> None:
        """Send `count` records as soon as the session is ready, and until there is a REPLY; in
        place of what was asked before, if anything was. `again`: under the next session too, for
        whoever carries it out knows it by an id of its own, or twice is as good as once."""
        assert count >= 0
        session.asked, session.wanted, session.again = (operation, body, count), False, again
        self._send_asked(session)

    def withdraw(self, session: LogSession) -> None:
        """Nobody waits for an answer any more. What has left may still be committed."""
        session.asked, session.wanted = None, False

    # --- inside

    def _send_asked(self, session: LogSession) -> None:
        if session.asked is not None and session.client.ready:
            self.request(session, *session.asked)

    def _collect(self, session: LogSession) -> None:
        """Turn what a client wants into rows."""
        client = session.client
        if not client.effects:
            return
        wants, client.effects = client.effects, []
        effects = self.effects
        for want in wants:
            kind = want[0]
            if kind == "send":
                link = session.links.get(want[1], session.relay)
                if link is not None:
                    effects.append((SEND, link, want[2], want[3]))
            elif kind == "reply":
                if session.wanted:  # else it was withdrawn
                    session.asked, session.wanted = None, False
                    effects.append((REPLY, session, want[1], want[2]))
            elif kind == "registered":
                effects.append((REGISTERED, session))
            else:
                assert kind == "evicted"
                if want[1] in EVICTIONS_LASTING or session.wanted and not session.again:
                    session.asked = None
                session.wanted = False
                effects.append((EVICTED, session, want[1], want[2]))
        if session.asked is not None:
            self._send_asked(session)
