"""The border of the edge: what happens goes in by `on_...`; `beat` says what should happen then.

(REQUEST, shard, log session, body, count) answered by on_reply; or on_evicted, then on_ready
(LOOKUP, shard, [room ids])                answered by on_rooms
(LIST, shard, first row, rows)             answered by on_list, in order
(MEND, shard, [segments])                  its replica is to mend them
(CLOSE, session, error)                    after its output was written
(ASK, number, request)                     of the objects, answered by objects.on_answer
(SAY, said)                                to other edges, heard by their on_live
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from appliance.base import limits
from appliance.base.errors import InputError
from appliance.cores.edge.admission import Admission
from appliance.cores.edge.catalogue import Catalogue
from appliance.cores.edge.connections import CLOSE, Connections
from appliance.cores.edge.encoding import Encoding
from appliance.cores.edge.federation import Federation
from appliance.cores.edge.frames import Frames
from appliance.cores.edge.joining_nodes import JoiningNodes
from appliance.cores.edge.log import Segments, ShardLog
from appliance.cores.edge.lookup import LOOKUP, Lookup, note_policy
from appliance.cores.edge.object_requests import ObjectRequests
from appliance.cores.edge.objects import ASK, SAY, Objects
from appliance.cores.edge.publish import LogSession, MessageIds
from appliance.cores.edge.readers import Readers
from appliance.cores.edge.replies import Replies
from appliance.cores.edge.requests.access import Access
from appliance.cores.edge.requests.charges import Charges
from appliance.cores.edge.requests.clock import Clock
from appliance.cores.edge.requests.dispatch import Requests
from appliance.cores.edge.requests.finding import Finding
from appliance.cores.edge.requests.listing import LIST, Listing
from appliance.cores.edge.requests.reading import Reading
from appliance.cores.edge.requests.room_acts import RoomActs
from appliance.cores.edge.requests.sending import Sending
from appliance.cores.edge.requests.sign_in import SignIn
from appliance.cores.edge.revocations import Revocations
from appliance.cores.edge.session import Session
from appliance.cores.edge.shard_room import ShardRoom
from appliance.cores.edge.subscription import Fanout
from appliance.cores.edge.token import Claims, Tokens
from appliance.formats.checkpoint import ROOM_ROW
from appliance.formats.client.connection import NodeState
from appliance.formats.geometry import Geometry

REQUEST, MEND = "request", "mend"
__all__ = ["ASK", "CLOSE", "LIST", "LOOKUP", "MEND", "REQUEST", "SAY", "Edge"]


class Edge:
    """One edge process, put together of its parts: each owns what it writes. See the package's
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
        log_sessions_per_shard: int = limits.VSR_SESSIONS_PER_EDGE,
        site: int = 1,
        name: str = "edge",
        revocations: Revocations | None = None,
        joining: JoiningNodes | None = None,
    ) -> None:
        """`site`: its number among linked ones; `name`: of this edge among all of them."""
        self.geometry = geometry
        self.counters: dict[str, int] = {}  # name -> how often, for metrics
        self.logs: dict[int, ShardLog] = {}  # shards whose replica here is attached
        self.log_sessions = {
            shard: [LogSession(geometry, shard, i) for i in range(log_sessions_per_shard)]
            for shard in range(shard_count)
        }
        self.lookup = Lookup(shard_of=shard_of, logs=self.logs, catalogue=Catalogue())
        self.lookup.shard_room = ShardRoom.read_by(revocations, joining)
        self.fanout = Fanout(self.logs, epoch)
        self._effects: list[tuple[Any, ...]] = []
        self._opening: dict[int, ShardLog] = {}  # attached, but the ring moved on while it was read
        self._ids, self._tokens = MessageIds(prng), tokens
        self._clock = clock = Clock()
        self._charges = charges = Charges(clock, admission, self.counters)
        self._access = access = Access(
            clock=clock,
            charges=charges,
            lookup=self.lookup,
            logs=self.logs,
            log_sessions=self.log_sessions,
            ids=self._ids,
        )
        self.objects = Objects(
            clock=clock, charges=charges, access=access, fanout=self.fanout, site=site, name=name
        )
        self._sign_in = SignIn(
            node=node, epoch=epoch, clock=clock, charges=charges, tokens=tokens, fanout=self.fanout
        )
        self.stale, self.behind = self._sign_in.stale, access.behind
        self._listing = Listing(charges=charges, access=access)
        self._connections = Connections(
            clock=clock,
            charges=charges,
            tokens=tokens,
            lookup=self.lookup,
            fanout=self.fanout,
            sign_in=self._sign_in,
        )
        self._connections.on_left = self.objects.on_left
        if revocations is not None:
            revocations.on_news = self.on_keys
        acts = RoomActs(charges, access, self._ids, self._connections)
        self.sessions, self._frames = self._connections.sessions, self._new_frames(epoch, acts)
        self._replies = Replies(
            clock=clock,
            charges=charges,
            access=access,
            connections=self._connections,
            frames=self._frames,
            acts=acts,
        )

    def _new_frames(self, epoch: int, acts: RoomActs) -> Frames:
        charges, access = self._charges, self._access
        self.federation = Federation(
            objects=self.objects, access=access, catalogue=self.lookup.catalogue
        )
        self.readers = Readers(
            clock=self._clock,
            charges=charges,
            access=access,
            tokens=self._tokens,
            stale=self.stale,
            shard_count=len(self.log_sessions),
        )
        self._finding = Finding(charges=charges, readers=self.readers)
        requests = Requests(
            charges=charges,
            access=access,
            families=(
                self._sign_in,
                Sending(clock=self._clock, charges=charges, access=access, ids=self._ids),
                Reading(
                    epoch=epoch,
                    charges=charges,
                    access=access,
                    fanout=self.fanout,
                    stale=self.stale,
                    closing=acts.closing,
                ),
                self._listing,
                acts,
                self._finding,
                self._sign_in.directories,
                ObjectRequests(objects=self.objects, access=access),
                self.federation,
            ),
        )
        return Frames(
            clock=self._clock,
            charges=charges,
            requests=requests,
            connections=self._connections,
            lookup=self.lookup,
        )

    @property
    def now_ns(self) -> int:
        """The time of the last tick, monotonic."""
        return self._clock.now_ns

    # --- connections

    def admit(self, address: str, token: str) -> Claims:
        """Whether who brings `token` with a handshake may come in, and as whom. Raises RateLimited
        and as `Tokens.verify`."""
        try:
            return self._sign_in.admit(address, token)
        except InputError as error:
            self._charges.count_error(error)
            raise

    def on_open(self, address: str, encoding: Encoding, claims: Claims | None = None) -> Session:
        """A connection is there; its session, in state "new". `claims`: of its handshake."""
        return self._connections.open(address, encoding, claims)

    def on_frame(self, session: Session, data: bytes | str, is_text: bool) -> None:
        """One whole message of the transport came."""
        self._frames.on_frame(session, data, is_text)

    def on_control(self, session: Session) -> None:
        """A frame came that is no message and no part of one: a ping, a pong."""
        self._frames.on_control(session)

    def on_fragment(self, session: Session) -> None:
        """A part of a message came; those before the last are counted as frames of their own."""
        self._frames.on_fragment(session)

    def on_oversize(self, session: Session) -> None:
        """A frame was too large to be received at all."""
        self._connections.on_oversize(session)

    def on_close(self, session: Session) -> None:
        """The connection is gone."""
        self._connections.forget(session)

    def on_blocked(self, session: Session) -> None:
        """The transport holds all it may; nothing live is written until `on_writable`."""
        if not session.blocked:
            session.blocked, session.blocked_ns = True, self.now_ns

    def on_writable(self, session: Session) -> None:
        """The transport has drained."""
        session.blocked = False
        self.fanout.on_writable(session)
        self._frames.run(session)

    def on_keys(self) -> None:
        """The public keys of the issuer have changed: who came with one that is gone must leave."""
        self._connections.on_keys()

    def on_held(self, held: list[tuple[Session, int]]) -> None:
        """What the edge holds, in bytes, for connections that hold much."""
        self._connections.on_held(held)

    def close_stuck(self) -> None:
        """Close connections that took nothing for very long; called every few seconds."""
        self._connections.close_stuck()

    def shut_down(self, elsewhere: Sequence[str] = ()) -> None:
        """The node stops: every client is told to go to one of these addresses, in turn."""
        self._connections.shut_down(elsewhere)

    def on_directory(self, signed: bytes, version: int, elsewhere: tuple[str, ...]) -> None:
        """There is a newer directory of the farm, verified. `elsewhere`: addresses of other nodes
        if this one is kept out: its clients must go there."""
        directories = self._sign_in.directories
        directories.learn(signed, version, elsewhere)
        if directories.excluded:
            self._connections.send_away(directories)

    # --- sessions of the replicated logs

    def on_ready(self, shard: int, log_session: int) -> None:
        """That session is registered and has no request in flight."""
        self.log_sessions[shard][log_session].on_ready()

    def on_evicted(self, shard: int, log_session: int) -> None:
        """That session is lost; what it had in flight goes out again after the next `on_ready`."""
        self._charges.count("lane_evicted")
        self.log_sessions[shard][log_session].on_evicted()

    def on_reply(self, shard: int, log_session: int, results: bytes | memoryview) -> None:
        """The results of the request in flight, in the order of its records."""
        self._replies.on_reply(shard, log_session, results)

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
        self._listing.fail_lists(shard)
        self._replies.acts.on_detached(shard)

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
            fresh = self.lookup.advance(shard, log_seq)
            if fresh is None:  # the ring moved on without us: begin anew
                self._charges.count("ring_lost")
                self._lose(shard)
                self._opening[shard] = self.logs.pop(shard)
                self.on_committed(shard, log_seq)
                return
            for room_id, records in fresh.items():
                room = self.lookup.catalogue.rooms[room_id]
                is_new = note_policy(room, records)
                if room.loaded:
                    self.fanout.on_committed(room, records)
                if is_new:
                    self._replies.acts.closing.tell(room, self.sessions.values())
        self._replies.on_committed(shard)
        self._run_early()

    def _run_early(self) -> None:
        """Those who waited for the log may go on, or wait again."""
        for session in self._access.take_early():
            self._frames.run(session)

    def on_replica_status(self, shard: int, behind: str, stale_since_us: int = 0) -> None:
        """Why the replica of this node cannot serve reads now, in a word; empty when it can. And
        since when it hears no quorum, in us since the epoch; 0 while it does: what it serves may
        be old, so every client is told."""
        before = self._sign_in.stale_since
        if not stale_since_us:
            self.stale.pop(shard, None)
        else:
            self.stale.setdefault(shard, stale_since_us)
        if self._sign_in.stale_since != before:
            self._connections.tell(NodeState(stale_since=self._sign_in.stale_since))
        if behind:
            self.behind[shard] = behind
        else:
            self.behind.pop(shard, None)

    def on_rooms(self, shard: int, log_seq: int, room_ids: list[bytes], rows: bytes) -> None:
        """The answer to a look-up: a row for each id, zero for rooms that the replica lacks, as of
        `log_seq`."""
        ready, lacking = self.lookup.on_rooms(shard, log_seq, room_ids, rows)
        for session in lacking:
            self._access.probe(session)
        for session in ready:
            self._frames.run(session)

    def on_list(self, shard: int, log_seq: int, rows: bytes) -> None:
        """The answer, as of `log_seq`, to the oldest list that was asked of `shard`."""
        self._listing.on_list(shard, log_seq, np.frombuffer(rows, ROOM_ROW))

    def on_live(self, said: dict[str, Any]) -> None:
        """What another process of this site said to all of them."""
        if not self.federation.on_live(said):
            self.objects.on_live(said)

    # --- time

    def on_tick(self, monotonic_ns: int, realtime_us: int) -> None:
        """Time is now this; every 10 ms."""
        self._clock.now_ns, self._clock.now_us = monotonic_ns, realtime_us
        self._ids.on_tick(realtime_us)
        self.fanout.on_tick()
        self.objects.on_tick()
        for session in self.lookup.on_tick(monotonic_ns, realtime_us):
            self._frames.run(session)
        self._run_early()
        for shard, log in self.logs.items():
            if log.broken:
                self._effects.append((MEND, shard, sorted(log.broken)))
                log.broken.clear()
        self._connections.close_late()
        self._connections.close_expired()

    # --- output

    def beat(self) -> bool:
        """Turn what was collected into effects; True when there is more to do at once."""
        self._frames.on_beat()
        more = self.fanout.serve()
        more = self._finding.serve() or more
        self._effects += self.lookup.take_effects()
        self._effects += self._listing.take_effects()
        self._effects += self.objects.take_effects() + self.federation.take_effects()
        for shard, log_sessions in self.log_sessions.items():
            for index, log_session in enumerate(log_sessions):
                batch = log_session.take()
                if batch is not None:
                    self._effects.append((REQUEST, shard, index, batch.body, batch.count))
        return more

    @property
    def is_unfinished(self) -> bool:
        """Whether there is more to do, now that output was taken."""
        return self._frames.is_unfinished

    def take_effects(self) -> list[tuple[Any, ...]]:
        """What should happen outside, in order."""
        effects, self._effects = self._connections.take_closings() + self._effects, []
        return effects

    def take_output(self) -> list[tuple[Session, list[bytes]]]:
        """What is to be written, by session."""
        output = self._connections.take_output()
        for session, _ in output:
            self._frames.on_taken(session)
        return output
