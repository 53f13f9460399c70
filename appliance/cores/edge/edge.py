"""The border of the edge: what happens goes in by `on_...`; `beat` says what should happen then.

(REQUEST, shard, lane, records, count)     answered by on_reply; or on_evicted, then on_ready
(LOOK_UP, shard, [room ids])               answered by on_rooms
(LIST, shard, first row, rows)             answered by on_list, in order
(MEND, shard, [segments])                  the replica of this node is to mend them
(CLOSE, session, error)                    after its output was written
"""

from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from appliance.base import limits
from appliance.base.errors import InputError
from appliance.cores.edge.admission import Admission
from appliance.cores.edge.answer import Answers, ack_of, error_of
from appliance.cores.edge.catalogue import Catalogue
from appliance.cores.edge.encoding import Encoding
from appliance.cores.edge.expiries import Expiries
from appliance.cores.edge.log import Segments, ShardLog
from appliance.cores.edge.lookup import LOOK_UP, Lookup
from appliance.cores.edge.publish import Lane, MessageIds
from appliance.cores.edge.requests import LIST, Creation, Probe, Requests
from appliance.cores.edge.session import Session
from appliance.cores.edge.subscription import Fanout
from appliance.cores.edge.token import Tokens
from appliance.formats import session as replies
from appliance.formats.checkpoint import ROOM_ROW
from appliance.formats.client.connection import NodeState
from appliance.formats.client.fields import id_of
from appliance.formats.client.history import SnapshotRequest
from appliance.formats.client.rooms import RoomAnswer
from appliance.formats.client.sign_in import Hello, RefreshToken
from appliance.formats.client_errors import (
    Closing,
    DuplicateExpired,
    FrameMalformed,
    FrameTooLarge,
    HeldTooMuch,
    HelloLate,
    HelloRequired,
    RateLimited,
    RefusedTooOften,
    SubscriptionTooSlow,
    TokenExpired,
    TokenKeyUnknown,
    Unavailable,
)
from appliance.formats.geometry import RECORD_SIZE, Geometry

REQUEST, CLOSE, MEND = "request", "close", "mend"
__all__ = ["CLOSE", "LIST", "LOOK_UP", "MEND", "REQUEST", "Edge"]

_MS_NS = 1_000_000


class Edge:
    """All sessions, lanes, rooms and subscriptions of one edge process. See the package's
    docstring."""

    def __init__(
        self,
        *,
        geometry: Geometry,
        node: int,
        epoch: int,
        shard_count: int,
        shard_of: Callable[[bytes], int],
        tokens: Tokens,
        admission: Admission,
        prng: Any,
        lanes_per_shard: int = limits.VSR_SESSIONS_PER_EDGE,
    ) -> None:
        self.geometry = geometry
        self.effects: list[tuple] = []
        self.sessions: dict[int, Session] = {}
        self.counters: dict[str, int] = {}  # name -> how often, for metrics
        self.logs: dict[int, ShardLog] = {}  # shards whose replica here is attached
        self.lanes = {
            shard: [Lane(geometry, shard, i) for i in range(lanes_per_shard)]
            for shard in range(shard_count)
        }
        self.lookup = Lookup(shard_of=shard_of, logs=self.logs, catalogue=Catalogue())
        self.fanout = Fanout(self.logs, epoch)
        self._ids = MessageIds(prng)
        self.requests = Requests(
            node=node,
            epoch=epoch,
            tokens=tokens,
            admission=admission,
            lookup=self.lookup,
            logs=self.logs,
            fanout=self.fanout,
            lanes=self.lanes,
            ids=self._ids,
            counters=self.counters,
        )
        self._tokens = tokens
        self._opening: dict[int, ShardLog] = {}  # attached, but the ring moved on while it was read
        self._late_acks: dict[int, list[tuple[int, Session, dict[str, Any]]]] = {}
        self._dirty: list[Session] = []
        self._new: deque[Session] = deque()  # have not said hello, oldest first
        self._expiries = Expiries()
        self._pages_left = limits.HISTORY_PAGES  # of history, until the next beat
        self._unfinished: list[Session] = []  # may go on with what waits: their output was taken
        self._numbers = 0

    def count(self, name: str, by: int = 1) -> None:
        """Add to a counter."""
        self.counters[name] = self.counters.get(name, 0) + by

    # --- connections

    def on_open(self, address: str, encoding: Encoding) -> Session:
        """A connection is there; its session, in state "new"."""
        self._numbers += 1
        session = Session(
            number=self._numbers,
            address=address,
            encoding=encoding,
            now_ns=self.requests.now_ns,
            dirty=self._dirty,
        )
        self.sessions[session.number] = session
        self._new.append(session)
        return session

    def on_frame(self, session: Session, data: bytes | str, is_text: bool) -> None:
        """One whole message of the transport came."""
        if session.state == "closed":
            return
        try:
            session.waiting.extend(session.parse(data, is_text))
        except InputError as error:
            self.count("malformed")
            session.refused_ms = wait_ms = self.requests.charge_refused(session)
            if wait_ms and not error.ends_connection:
                error = RateLimited("too many malformed frames", wait_ms)
            self.refuse(session, error, **session.named_in(data, is_text))
            self._on_refused(session)
            return
        if session.awaits is None and not session.mended_by_ns:
            self._run(session)

    def on_control(self, session: Session) -> None:
        """A frame came that is no message and no part of one, or only a part: a ping, a pong."""
        if session.state == "closed":
            return
        if session.state == "new":
            self.refuse(session, HelloRequired("the first frame must be hello"))
            return
        wait_ms = self.requests.charge_refused(session)
        if wait_ms:
            self.count("control_refused")
            session.refused_ms = wait_ms
            self._on_refused(session)

    def on_fragment(self, session: Session) -> None:
        """A part of a message came; those before the last are counted as frames of their own."""
        if session.state == "closed":
            return
        wait_ms = self.requests.charge_refused(session)
        if wait_ms:
            session.refused_ms = wait_ms
            self._on_refused(session)

    def _on_refused(self, session: Session) -> None:
        """The frame in hand was refused, in whole or in part."""
        wait_ms, session.refused_ms = session.refused_ms, -1
        if session.patience.on_refusal(self.requests.now_ns, wait_ms) and session.state != "closed":
            self.refuse(session, RefusedTooOften("frame after frame was refused"))

    def on_oversize(self, session: Session) -> None:
        """A frame was too large to be received at all."""
        if session.state != "closed":
            self.refuse(
                session, FrameTooLarge(f"a frame has at most {session.frame_size_max} bytes now")
            )

    def on_close(self, session: Session) -> None:
        """The connection is gone."""
        self._leave(session)
        self.sessions.pop(session.number, None)

    def on_blocked(self, session: Session) -> None:
        """The transport holds all it may; nothing live is written until `on_writable`."""
        if not session.blocked:
            session.blocked, session.blocked_ns = True, self.requests.now_ns

    def on_writable(self, session: Session) -> None:
        """The transport has drained."""
        session.blocked = False
        self.fanout.on_writable(session)
        self._run(session)

    def _run(self, session: Session) -> None:
        """Handle the session's frames in order, until one must wait: for a room, or because what
        was answered before is not taken."""
        waiting = session.waiting
        while waiting and session.state != "closed" and not session.is_full:
            frame = waiting[0]
            if type(frame) is SnapshotRequest:
                if self._pages_left <= 0:
                    self._unfinished.append(session)  # its turn comes with the next beat
                    return
                self._pages_left -= 1
            try:
                if not self.requests.handle(session, frame):
                    return
            except InputError as error:
                if type(error) is FrameMalformed:
                    self.count("malformed")
                self.lookup.leave(session)
                session.refused_ms = error.retry_after_ms
                self.refuse(session, error, **_named(frame))
            else:
                if type(frame) in (Hello, RefreshToken):
                    assert session.claims is not None
                    self._expiries.put(session.number, session.claims.expires_us)
            session.is_charged = False
            if session.refused_ms >= 0:
                self._on_refused(session)
            if waiting:
                waiting.popleft()

    def refuse(self, session: Session, error: InputError, **named: Any) -> None:
        """Answer with an error, and close the connection if that error ends it."""
        self.count("error_" + error.name)
        session.refuse(error, **named)
        if error.ends_connection or (error.ends_stranger and session.state == "new"):
            self._close(session, error)

    def _close(self, session: Session, error: InputError) -> None:
        self._leave(session)
        self.effects.append((CLOSE, session, error))

    def _leave(self, session: Session) -> None:
        if session.state == "closed":
            return
        self.lookup.leave(session)
        self._expiries.drop(session.number)
        if session.state == "ready":
            self._forget_user(session)
        for room_id in list(session.subscriptions):
            self.fanout.drop(session, room_id)
        session.waiting.clear()
        session.on_event("close")

    def _forget_user(self, session: Session) -> None:
        assert session.claims is not None
        users, author_id = self.requests.users, session.claims.author_id
        users[author_id] -= 1
        if not users[author_id]:
            del users[author_id]

    def on_keys(self) -> None:
        """The public keys of the issuer have changed: who came with one that is gone must leave."""
        for session in list(self.sessions.values()):
            if session.state != "ready":
                continue
            assert session.claims is not None
            if not self._tokens.is_trusted(session.claims):
                error = TokenKeyUnknown("the key of this session's token is not trusted any more")
                self.count("error_" + error.name)
                session.refuse(error)
                self._close(session, error)

    def on_held(self, held: list[tuple[Session, int]]) -> None:
        """What the edge holds for connections that hold much, in bytes: the largest of a user or of
        all are closed until the others are within bounds."""
        total = sum(size for _, size in held)
        of_user: dict[int, int] = {}
        for session, size in held:
            user = -1 if session.claims is None else session.claims.author_id
            of_user[user] = of_user.get(user, 0) + size
        for session, size in sorted(held, key=lambda row: -row[1]):
            user = -1 if session.claims is None else session.claims.author_id
            if (
                size > limits.CONNECTION_HELD_MAX
                or total > limits.EDGE_HELD_MAX
                or of_user[user] > limits.USER_HELD_MAX
            ):
                total -= size
                of_user[user] -= size
                self._discard(session)

    def _discard(self, session: Session) -> None:
        """Close a connection that takes nothing, and drop what is held for it."""
        if session.state != "closed":
            session.out.clear()
            session.out_size = 0
            self.refuse(session, HeldTooMuch("too much waits for this connection"))

    def shut_down(self) -> None:
        """The node stops: every client is told to go elsewhere."""
        for session in list(self.sessions.values()):
            if session.state != "closed":
                self.refuse(session, Closing("this node is stopping"))

    # --- lanes: sessions of the replicated logs

    def on_ready(self, shard: int, lane: int) -> None:
        """That session is registered and has no request in flight."""
        self.lanes[shard][lane].ready = True

    def on_evicted(self, shard: int, lane: int) -> None:
        """That session is lost; what it had in flight goes out again after the next `on_ready`."""
        self.count("lane_evicted")
        self.lanes[shard][lane].on_evicted()

    def on_reply(self, shard: int, lane: int, results: bytes | memoryview) -> None:
        """The results of the request in flight, in the order of its records."""
        batch = self.lanes[shard][lane].on_reply()
        answers = Answers(batch, results)
        for owner, first, count in batch.runs:
            if type(owner) is Probe:
                self._on_probed(owner, answers.codes[first])
                continue
            session = owner.session if type(owner) is Creation else owner
            session.seen[shard] = max(answers.newest, session.seen.get(shard, 0))
            if type(owner) is Creation:
                self._on_created(owner, shard, answers.codes[first], answers.seq(first))
            else:
                self._on_sent(owner, shard, answers, first, count)
        self.count("records_answered", batch.count)
        self.lanes[shard][lane].recycle(batch)

    def _on_sent(
        self, session: Session, shard: int, answers: Answers, first: int, count: int
    ) -> None:
        session.in_flight -= count
        if session.state != "ready":
            return
        start = first
        for i in answers.refused(first, count):
            answers.ack(session, start, i - start)
            start = i + 1
            if answers.codes[i] == replies.DUPLICATE:
                session.in_flight += 1
                self._ack_again(shard, answers.log_seq(i), session, answers.named(i))
            else:
                self.refuse(session, error_of(answers.codes[i], answers.seq(i)), **answers.named(i))
        answers.ack(session, start, first + count - start)

    def _on_probed(self, probe: Probe, code: int) -> None:
        """The log has said whether there is such a room; who has left since does not care."""
        if probe.session.awaits is probe.awaited and code == replies.ROOM_UNKNOWN:
            probe.awaited.denied = True
            self._run(probe.session)

    def _on_created(self, creation: Creation, shard: int, code: int, seq: int) -> None:
        session, frame = creation.session, creation.frame
        session.in_flight -= 1
        if code in (replies.OK, replies.DUPLICATE, replies.DUPLICATE_EXPIRED):
            self.lookup.named(creation.room_id, shard, frame.name)
            if session.state == "ready":
                session.send(
                    RoomAnswer(
                        room_id=id_of(creation.room_id),
                        created=code == replies.OK,
                        name=frame.name,
                        request=frame.request,
                    )
                )
        elif session.state == "ready":
            self.refuse(session, error_of(code, seq), request=frame.request)

    def _ack_again(self, shard: int, log_seq: int, session: Session, named: dict[str, Any]) -> None:
        """Answer a duplicate with the first ack, now or when the replica of this node has that
        record."""
        log = self.logs.get(shard)
        if log is None or log_seq > log.log_seq:
            self._late_acks.setdefault(shard, []).append((log_seq, session, named))
            return
        session.in_flight -= 1
        if session.state != "ready":
            return
        try:
            record = log.record(log_seq)
        except Unavailable as error:
            self.refuse(session, error, **named)
            return
        if record is None:
            self.refuse(session, DuplicateExpired("stored before, but no longer kept"), **named)
        else:
            session.send(ack_of(record))

    # --- the replica of this node

    def on_attached(self, shard: int, ring: memoryview, segments: Segments, log_seq: int) -> None:
        """Its ring can be read; records up to `log_seq` are committed."""
        self.on_detached(shard)
        self._opening[shard] = ShardLog(self.geometry, ring, segments)
        self.on_committed(shard, log_seq)

    def on_detached(self, shard: int) -> None:
        """Its ring must not be read any more."""
        self._opening.pop(shard, None)
        self._lose(shard)
        self.logs.pop(shard, None)
        self.requests.fail_lists(shard)

    def _lose(self, shard: int) -> None:
        for room in self.lookup.lose(shard):
            self.fanout.interrupt(room)

    def on_committed(self, shard: int, log_seq: int) -> None:
        """Records up to `log_seq` are committed and can be read."""
        log = self.logs.get(shard)
        if log is None:
            log = self._opening.get(shard)
            if log is not None and log.open(log_seq):
                self.logs[shard] = self._opening.pop(shard)
        elif log_seq > log.log_seq:
            rooms = self.lookup.catalogue.rooms
            fresh = log.advance(log_seq, rooms)
            if fresh is None:  # the ring moved on without us: begin anew
                self.count("ring_lost")
                self._lose(shard)
                self._opening[shard] = self.logs.pop(shard)
                self.on_committed(shard, log_seq)
                return
            for room_id, records in fresh.items():
                if rooms[room_id].loaded:
                    self.fanout.on_committed(rooms[room_id], records)
        self._late_ones(shard)
        self._run_early()

    def _run_early(self) -> None:
        """Those who waited for the log may go on, or wait again."""
        early, self.requests.early = self.requests.early, []
        for session in early:
            self._run(session)

    def _late_ones(self, shard: int) -> None:
        late = self._late_acks.pop(shard, [])
        for log_seq, session, named in late:
            self._ack_again_or_drop(shard, log_seq, session, named)

    def _ack_again_or_drop(
        self, shard: int, log_seq: int, session: Session, named: dict[str, Any]
    ) -> None:
        if session.state == "ready":
            self._ack_again(shard, log_seq, session, named)
        else:
            session.in_flight -= 1

    def on_replica_status(self, shard: int, behind: str, stale_since_us: int = 0) -> None:
        """Why the replica of this node cannot serve reads now, in a word; empty when it can. And
        since when it hears no quorum, in us since the epoch; 0 while it does: what it serves may
        be old, so every client is told."""
        before = self.requests.stale_since
        if not stale_since_us:
            self.requests.stale.pop(shard, None)
        else:
            self.requests.stale.setdefault(shard, stale_since_us)
        if self.requests.stale_since != before:
            state = NodeState(stale_since=self.requests.stale_since)
            for session in self.sessions.values():
                if session.state == "ready":
                    session.send(state)
        if behind:
            self.requests.behind[shard] = behind
        else:
            self.requests.behind.pop(shard, None)

    def on_rooms(self, shard: int, log_seq: int, room_ids: list[bytes], rows: bytes) -> None:
        """The answer to a look-up: a row for each id, zero for rooms that the replica lacks, as of
        `log_seq`."""
        ready, lacking = self.lookup.on_rooms(shard, log_seq, room_ids, rows)
        for session in lacking:
            self.requests.probe(session)
        for session in ready:
            self._run(session)

    def on_list(self, shard: int, log_seq: int, rows: bytes) -> None:
        """The answer, as of `log_seq`, to the oldest list that was asked of `shard`."""
        if self.requests.lists.get(shard):
            self.requests.on_list(shard, log_seq, np.frombuffer(rows, ROOM_ROW))

    # --- time

    def on_tick(self, monotonic_ns: int, realtime_us: int) -> None:
        """Time is now this; every 10 ms."""
        self.requests.now_ns, self.requests.now_us = monotonic_ns, realtime_us
        self._ids.on_tick(realtime_us)
        self.fanout.on_tick()
        for session in self.lookup.on_tick(monotonic_ns):
            self._run(session)
        self._run_early()
        for shard, log in self.logs.items():
            if log.broken:
                self.effects.append((MEND, shard, sorted(log.broken)))
                log.broken.clear()
        self._close_late(monotonic_ns)
        self._close_expired(realtime_us)

    def _close_late(self, now_ns: int) -> None:
        while self._new:
            session = self._new[0]
            if session.state == "new":
                if now_ns - session.opened_ns < limits.HELLO_MS_MAX * _MS_NS:
                    break
                self.refuse(session, HelloLate("no valid hello came in time"))
            self._new.popleft()

    def _close_expired(self, now_us: int) -> None:
        for number in self._expiries.due(now_us):
            session = self.sessions[number]
            error = TokenExpired("the session's token has expired")
            self.count("error_" + error.name)
            session.refuse(error)
            self._close(session, error)

    def close_stuck(self) -> None:
        """Close connections that took nothing for very long; called every few seconds."""
        now_ns = self.requests.now_ns
        for session in list(self.sessions.values()):
            if (
                session.blocked
                and session.state == "ready"
                and now_ns - session.blocked_ns > limits.LAG_MS_MAX * _MS_NS
            ):
                self._close_too_slow(session)

    def _close_too_slow(self, session: Session) -> None:
        error = SubscriptionTooSlow("nothing was read for minutes", 0)
        for room_id, subscription in session.subscriptions.items():
            is_lagging = subscription.state == "lagging"
            next_op = subscription.next_op if is_lagging else subscription.room.head + 1
            error = SubscriptionTooSlow(str(error), next_op - 1)
            session.refuse(error, room_id=id_of(room_id))
        self.count("error_" + error.name)
        self._close(session, error)

    # --- output

    def beat(self) -> bool:
        """Turn what was collected into effects; True when there is more to do at once."""
        self._pages_left = limits.HISTORY_PAGES
        unfinished, self._unfinished = self._unfinished, []
        for session in unfinished:
            if session.awaits is None:
                self._run(session)
        more = self.fanout.serve()
        self.effects += self.lookup.take_effects()
        if self.requests.effects:
            self.effects += self.requests.effects
            self.requests.effects.clear()
        for lanes in self.lanes.values():
            for lane in lanes:
                batch = lane.take()
                if batch is not None:
                    self.effects.append(
                        (
                            REQUEST,
                            lane.shard,
                            lane.index,
                            batch.view[: batch.count * RECORD_SIZE],
                            batch.count,
                        )
                    )
        return more

    @property
    def is_unfinished(self) -> bool:
        """Whether there is more to do at once, now that output was taken."""
        return bool(self._unfinished)

    def take_effects(self) -> list[tuple]:
        """What should happen outside, in order."""
        effects, self.effects = self.effects, []
        return effects

    def take_output(self) -> list[tuple[Session, list[bytes]]]:
        """What is to be written, by session."""
        output = []
        for session in self._dirty:
            output.append((session, session.out))
            if session.waiting:
                self._unfinished.append(session)
            session.out, session.out_size, session.is_dirty = [], 0, False
        self._dirty.clear()
        return output


def _named(frame: Any) -> dict[str, Any]:
    """What an error answer to `frame` repeats of it."""
    named = {}
    for name in ("request", "room_id"):
        value = getattr(frame, name, None)
        if value is not None:
            named[name] = value
    return named
