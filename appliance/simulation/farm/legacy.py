"""A member modelled on JRaft, with what is unsafe or brittle about it; see docs/farm.md.

It is written apart from our core, on purpose. Its quirks are marked with the words under which
`quirks` counts them; those that can break a promise of the whole farm are in UNSAFE.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from appliance.base.errors import FarmFrameError
from appliance.base.prng import Prng
from appliance.formats.raft_legacy.configuration import (
    Configuration,
    Server,
    decode_configuration,
    decode_server,
    decode_server_id,
    encode_configuration,
)
from appliance.formats.raft_legacy.frame import (
    ADD_SERVER,
    ANSWER_OF,
    APPEND_ENTRIES,
    APPLICATION,
    CLIENT_REQUEST,
    CONFIGURATION,
    INSTALL_SNAPSHOT,
    JOIN_CLUSTER,
    LEAVE_CLUSTER,
    LOG_PACK,
    REMOVE_SERVER,
    REQUEST_VOTE,
    SNAPSHOT_SYNC,
    SYNC_LOG,
    Entry,
    Request,
    Response,
)
from appliance.formats.raft_legacy.log_pack import decode_log_pack, encode_log_pack, record_size
from appliance.formats.raft_legacy.snapshot_block import (
    SnapshotBlock,
    decode_snapshot_block,
    encode_snapshot_block,
)
from appliance.simulation.farm.checkers import Checkers
from appliance.simulation.farm.fabric import Connection, Fabric
from appliance.simulation.farm.host import id_of
from appliance.simulation.farm.options import FarmOptions
from appliance.simulation.schedule import TICK_US

# Quirks after which the farm's promises are no longer ours to keep.
UNSAFE = frozenset(
    {"counted_old_term", "stale_match", "unproven_commit", "emptied_voter", "left_while_needed"}
)


_ENTRIES_MAX = 50  # of one append


class Died(Exception):
    """The process of the legacy server ends, as it does on frames it does not expect."""


@dataclass(slots=True)
class Peer:
    link: Connection | None = None
    dialling: bool = False
    next: int = 1
    match: int = 0  # never reset: a quirk
    flight: Request | None = None
    offset: int = 0
    hinted: bool = False  # it was itself that asked for entry 1
    dead: bool = False  # its append failed inside: never spoken to again in this term


@dataclass(slots=True)
class LegacyJoin:
    server: Server
    position: int = 0
    size: int = 0
    accepted: bool = False
    tries: int = 0


@dataclass(slots=True)
class Durable:
    """What kill -9 leaves: nothing is flushed, but the machine does not lose power."""

    term: int = 0
    vote: int = 0
    commit: int = 0
    before: int = 0
    before_term: int = 0
    entries: list[Entry] = field(default_factory=list)
    snapshot: bytes = b""
    records_size: int = 0  # of its file of records, to see packs that do not continue it


class Legacy:
    """One legacy member; its life is a `Process` of the fabric."""

    pre_vote = False

    def __init__(
        self,
        *,
        id: int,
        options: FarmOptions,
        fabric: Fabric,
        checkers: Checkers,
        prng: Prng,
        configured: Configuration,
    ) -> None:
        self.id, self.options, self.fabric, self.checkers = id, options, fabric, checkers
        self.prng, self.base = prng, configured
        self.disk = Durable()
        self.life, self.up, self.out = 0, False, False
        self.quirks: Counter[str] = Counter()
        self.snapshot_of: Callable[[int], bytes] = lambda index: b"{}"
        self.applied = 0

    def start(self) -> None:
        self.life, self.up = self.life + 1, True
        self.role, self.leader = "follower", -1
        self.peers: dict[int, Peer] = {}
        self.votes: dict[int, bool] = {}
        self.tick, self.timer, self.beat_tick = 0, 0, 0
        self.timeout = self._draw()
        self.leaving = False
        self.stuck = False  # nobody but an operator, who starts it again, makes it go on
        self.join: LegacyJoin | None = None
        self.removing = 0
        self.receiving = bytearray()
        self.applied = self.disk.before
        self.fabric.trace("legacy", self.id)
        self._apply()
        self.fabric.schedule.after(self.prng.below(TICK_US) + 1, self._ticked, self.life)

    def crash(self) -> None:
        self.up = False
        self.fabric.trace("crash", self.id)
        for connection in self.fabric.connections:
            if connection.up and self.id in (connection.client, connection.server):
                self.fabric.break_up(connection)

    def _draw(self) -> int:
        low, high = (
            self.options.settings.election_ticks_min,
            self.options.settings.election_ticks_max,
        )
        return self.prng.between(low, high)

    # --- log --------------------------------------------------------------------------------------

    @property
    def last(self) -> int:
        return self.disk.before + len(self.disk.entries)

    def term_of(self, index: int) -> int:
        disk = self.disk
        if disk.before < index <= self.last:
            return disk.entries[index - disk.before - 1].term
        return disk.before_term if index == disk.before else 0

    def configuration(self) -> Configuration:
        """The one that counts: the newest *committed* one."""
        for index in range(self.disk.commit, self.disk.before, -1):
            entry = self.disk.entries[index - self.disk.before - 1]
            if entry.type == CONFIGURATION:
                return decode_configuration(entry.value)
        return self.base

    def voters(self) -> tuple[int, ...]:
        return self.configuration().ids

    def _write(self, index: int, entry: Entry) -> None:
        disk = self.disk
        del disk.entries[index - disk.before - 1 :]
        disk.commit = min(disk.commit, self.last)
        self.applied = min(self.applied, disk.commit)
        disk.entries.append(entry)
        disk.records_size = sum(record_size(e) for e in disk.entries)

    def _commit(self, index: int) -> None:
        index = min(index, self.last)
        if index > self.disk.commit:
            self.disk.commit = index
            self._apply()

    def _apply(self) -> None:
        disk = self.disk
        if disk.commit > self.applied:
            entries = tuple(disk.entries[self.applied - disk.before : disk.commit - disk.before])
            self.checkers.on_commit(self.id, disk.term, self.applied + 1, entries)
            self.applied = disk.commit
        if disk.commit - disk.before > self.options.settings.snapshot_distance:
            self._compact(disk.commit)

    def _compact(self, index: int) -> None:
        """It keeps nothing behind its snapshot."""
        disk = self.disk
        self.base = self.configuration()
        disk.snapshot, disk.before_term = self.snapshot_of(index), self.term_of(index)
        del disk.entries[: index - disk.before]
        disk.before = index
        disk.records_size = sum(record_size(e) for e in disk.entries)

    # --- time -------------------------------------------------------------------------------------

    def _ticked(self, life: int) -> None:
        if not self.up or life != self.life:
            return
        self.tick += 1
        try:
            if self.role == "leader":
                self._lead()
            elif not self.leaving and self.tick - self.timer >= self.timeout:
                self._stand()
            elif self.leaving and self.tick - self.timer >= 2 * self.timeout:
                if len(self.voters()) == 2 and self.id in self.voters():
                    self.quirks["left_while_needed"] += 1
                self.out = True
                self.crash()
                return
        except Died:
            self._die()
            return
        self._connect()
        self.fabric.schedule.after(TICK_US, self._ticked, life)

    def _die(self) -> None:
        self.quirks["died"] += 1
        self.crash()

    def _stand(self) -> None:
        """A higher term at once, whoever can be reached."""
        self.timer, self.timeout = self.tick, self._draw()
        if self.id not in self.voters():
            return
        self.disk.term, self.disk.vote = self.disk.term + 1, self.id
        self.role, self.leader = "candidate", -1
        self.votes = {self.id: True}
        for peer_id, peer in self.peers.items():
            if peer_id in self.voters():
                last_term = self.term_of(self.last)
                self._send(
                    peer,
                    Request(REQUEST_VOTE, self.id, peer_id, self.disk.term, last_term, self.last),
                )
        self._count_votes()

    def _count_votes(self) -> None:
        if self.role == "candidate" and 2 * sum(self.votes.values()) > len(self.voters()):
            self.role, self.leader = "leader", self.id
            self.checkers.on_leader(self.id, self.disk.term, self.last, self._known_term)
            self.join, self.removing = None, 0
            for peer in self.peers.values():
                peer.next, peer.offset, peer.dead = self.last + 1, 0, False
            if self.last == 0:
                first = Configuration(1, 0, self.base.servers)
                entry = Entry(self.disk.term, CONFIGURATION, encode_configuration(first))
                self._write(1, entry)
            self._replicate()

    def _known_term(self, index: int) -> int | None:
        return self.term_of(index) if index >= self.disk.before and index <= self.last else None

    def _lead(self) -> None:
        if self.tick - self.beat_tick >= self.options.settings.heartbeat_ticks:
            self._replicate()

    # --- connections ------------------------------------------------------------------------------

    def _connect(self) -> None:
        wanted = {s.id: s.endpoint for s in self.configuration().servers if s.id != self.id}
        if self.join is not None:
            wanted.setdefault(self.join.server.id, self.join.server.endpoint)
        for peer_id in [p for p in self.peers if p not in wanted]:
            link = self.peers.pop(peer_id).link
            if link is not None:
                self.fabric.break_up(link)
        for peer_id, endpoint in wanted.items():
            if peer_id not in self.peers:
                self.peers[peer_id] = Peer(next=self.last + 1)
            peer = self.peers[peer_id]
            if peer.link is None and not peer.dialling:
                peer.dialling = True
                self.fabric.dial(self.id, id_of(endpoint), self._dialled(peer))

    def _dialled(self, peer: Peer) -> Callable[[Connection | None], None]:
        life = self.life

        def done(connection: Connection | None) -> None:
            if life == self.life and connection is not None:
                peer.link = connection
            peer.dialling = False

        return done

    def on_broken(self, connection: Connection) -> None:
        for peer in self.peers.values():
            if peer.link is connection:
                peer.link, peer.flight = None, None

    def _send(self, peer: Peer, request: Request) -> None:
        if peer.link is not None and peer.flight is None:
            peer.flight = request
            self.fabric.send(peer.link, request)

    # --- leading ----------------------------------------------------------------------------------

    def _replicate(self) -> None:
        self.beat_tick = self.tick
        for peer_id in list(self.peers):
            if peer_id in self.voters():
                self._append_to(peer_id)
        self._drive_join()
        self._advance()

    def _append_to(self, peer_id: int) -> None:
        peer, disk = self.peers[peer_id], self.disk
        if peer.dead or peer.flight is not None or peer.link is None:
            return
        if peer.next <= disk.before:
            if peer.next == 1:
                self.quirks["hint_1" if peer.hinted else "next_1_since_it_leads"] += 1
                self.stuck = self.stuck or not peer.hinted
                peer.dead = True  # fails inside on entry 0 of a compacted log
                return
            self._send_snapshot(peer_id)
            return
        previous = peer.next - 1
        entries = tuple(disk.entries[previous - disk.before :][:_ENTRIES_MAX])
        self._send(
            peer,
            Request(
                APPEND_ENTRIES,
                self.id,
                peer_id,
                disk.term,
                self.term_of(previous),
                previous,
                disk.commit,
                entries,
            ),
        )

    def _send_snapshot(self, peer_id: int) -> None:
        peer, disk = self.peers[peer_id], self.disk
        if not disk.snapshot:
            raise Died
        size = self.options.settings.snapshot_block_size
        data = disk.snapshot[peer.offset : peer.offset + size]
        done = peer.offset + len(data) >= len(disk.snapshot)
        block = SnapshotBlock(disk.before, disk.before_term, self.base, peer.offset, data, done)
        entry = Entry(disk.term, SNAPSHOT_SYNC, encode_snapshot_block(block))
        self._send(
            peer,
            Request(
                INSTALL_SNAPSHOT,
                self.id,
                peer_id,
                disk.term,
                disk.before_term,
                disk.before,
                disk.commit,
                (entry,),
            ),
        )

    def _advance(self) -> None:
        """Counts copies, whatever their term."""
        if self.role != "leader":
            return
        voters = self.voters()
        matches = sorted(
            (self.last if i == self.id else self.peers[i].match if i in self.peers else 0)
            for i in voters
        )
        if not matches:
            return
        index = min(matches[(len(matches) - 1) // 2], self.last)
        if index > self.disk.commit:
            if self.term_of(index) != self.disk.term:
                self.quirks["counted_old_term"] += 1
            self._commit(index)
            self.removing = self.removing if self.removing in self.voters() else 0
            for peer_id in list(self.peers):
                if peer_id in self.voters():
                    self._append_to(peer_id)

    def _drive_join(self) -> None:
        join, disk = self.join, self.disk
        if join is None or join.server.id not in self.peers:
            return
        peer = self.peers[join.server.id]
        if peer.flight is not None or peer.link is None:
            return
        if not join.accepted:
            join.tries += 1
            if join.tries > 20:
                self.join = None
                return
            value = encode_configuration(self.configuration())
            entry = Entry(disk.term, CONFIGURATION, value)
            self._ask_joiner(JOIN_CLUSTER, peer, self.last, entry)
        elif join.position < disk.before:
            self._send_snapshot(join.server.id)
        elif disk.commit - join.position >= self.options.settings.stop_gap:
            first = join.position - disk.before
            entries = disk.entries[first : min(first + 3, disk.commit - disk.before)]
            entry = Entry(disk.term, LOG_PACK, encode_log_pack(entries, join.size))
            self._ask_joiner(SYNC_LOG, peer, join.position, entry)
        else:
            servers = (*self.configuration().servers, join.server)
            peer.next = join.position + 1
            self.join = None
            self._list(servers)

    def _ask_joiner(self, kind: int, peer: Peer, index: int, entry: Entry) -> None:
        assert self.join is not None
        disk = self.disk
        self._send(
            peer,
            Request(kind, self.id, self.join.server.id, disk.term, 0, index, disk.commit, (entry,)),
        )

    def _list(self, servers: tuple[Server, ...]) -> None:
        index = self.last + 1
        value = encode_configuration(Configuration(index, self.configuration().index, servers))
        self._write(index, Entry(self.disk.term, CONFIGURATION, value))
        self._advance()

    # --- answers ----------------------------------------------------------------------------------

    def on_response(self, connection: Connection, response: Response) -> None:
        found = [i for i, peer in self.peers.items() if peer.link is connection]
        if not found:
            return
        peer_id = found[0]
        peer = self.peers[peer_id]
        request, peer.flight = peer.flight, None
        if request is None or response.term < self.disk.term:
            return
        if response.term > self.disk.term:
            self._follow(response.term, -1)
            return
        try:
            self._answered(peer_id, peer, request, response)
        except Died:
            self._die()

    def _answered(self, peer_id: int, peer: Peer, request: Request, response: Response) -> None:
        if request.type == REQUEST_VOTE:
            self.votes[peer_id] = response.accepted
            self._count_votes()
        elif self.role != "leader":
            return
        elif request.type == APPEND_ENTRIES:
            if response.accepted:
                peer.next, peer.match = response.next_index, response.next_index - 1
                self._advance()
            elif 0 < response.next_index < peer.next:
                peer.next = response.next_index
                peer.hinted = peer.next == 1
            else:
                peer.next = max(1, peer.next - 1)
            if peer.next <= self.last:
                self._append_to(peer_id)
        elif request.type == INSTALL_SNAPSHOT:
            self._installed(peer_id, peer, request, response)
        elif self.join is not None and request.type == JOIN_CLUSTER:
            self.join.accepted = response.accepted
        elif self.join is not None and request.type == SYNC_LOG and response.accepted:
            _, entries = decode_log_pack(request.entries[0].value)
            self.join.position = response.next_index - 1
            self.join.size += sum(record_size(e) for e in entries)
            self._drive_join()
        elif request.type == LEAVE_CLUSTER and response.accepted:
            servers = self.configuration().servers
            self._list(tuple(s for s in servers if s.id != peer_id))

    def _installed(self, peer_id: int, peer: Peer, request: Request, response: Response) -> None:
        if request.previous_index != self.disk.before:
            peer.offset = 0
        elif not response.accepted:
            self._send_snapshot(peer_id)  # again, without a pause
        elif response.next_index < len(self.disk.snapshot):
            peer.offset = response.next_index
            self._send_snapshot(peer_id)
        else:
            peer.offset, peer.next = 0, self.disk.before + 1
            if self.join is not None and self.join.server.id == peer_id:
                self.join.position, self.join.size = self.disk.before, 0
                self._drive_join()

    # --- requests ---------------------------------------------------------------------------------

    def on_request(self, connection: Connection, request: Request) -> None:
        try:
            answer = self._handle(request)
        except Died:
            self._die()
            return
        except (FarmFrameError, ValueError, IndexError, KeyError):
            self.fabric.break_up(connection)  # an exception inside closes, without an answer
            return
        if answer is not None:
            accepted, next_index, destination = answer
            response = Response(
                ANSWER_OF[request.type],
                self.id,
                destination,
                self.disk.term,
                next_index,
                accepted,
            )
            self.fabric.send(connection, response)
        else:
            self.fabric.break_up(connection)

    def _handle(self, request: Request) -> tuple[bool, int, int] | None:
        kind, source = request.type, request.source
        if kind == CLIENT_REQUEST:
            return self._client(request)
        if kind in (ADD_SERVER, REMOVE_SERVER):
            return self._change(request)
        if kind == JOIN_CLUSTER:  # from anybody, at any time, even of a lower term
            self.disk.term, self.disk.vote = request.term, 0
            self._heard(source)
            (entry,) = request.entries
            self.base = decode_configuration(entry.value)
            return True, self.last + 1, source
        if kind == SYNC_LOG:
            self._heard(source)
            return self._sync(request), self.last + 1, source
        if request.term > self.disk.term and kind != REQUEST_VOTE:
            self._follow(request.term, source)
        if kind == REQUEST_VOTE:
            return self._vote(request), 0, source
        if kind == APPEND_ENTRIES:
            return self._append(request)
        if kind == INSTALL_SNAPSHOT:
            return self._install(request)
        if kind == LEAVE_CLUSTER:
            self.leaving = True
            self._heard(source)
            return True, self.last + 1, source
        return None  # 33 and beyond only close

    def _heard(self, source: int) -> None:
        self.timer, self.timeout, self.leader = self.tick, self._draw(), source
        self.role = "follower"

    def _follow(self, term: int, leader: int) -> None:
        self.disk.term, self.disk.vote = term, 0
        self.role, self.leader = "follower", leader
        self.timer, self.timeout = self.tick, self._draw()

    def _client(self, request: Request) -> tuple[bool, int, int]:
        if self.role != "leader":
            return False, 0, self.leader
        for entry in request.entries:  # any type becomes type 1; yes before it is replicated
            self._write(self.last + 1, Entry(self.disk.term, APPLICATION, entry.value))
        if request.entries:
            self._replicate()
        return True, self.last + 1, self.id

    def _change(self, request: Request) -> tuple[bool, int, int]:
        busy = self.join is not None or self.removing in self.voters()
        pending = any(
            e.type == CONFIGURATION
            for e in self.disk.entries[self.disk.commit - self.disk.before :]
        )
        if self.role != "leader":
            return False, 0, self.leader
        (entry,) = request.entries
        if busy or pending:
            return False, self.last + 1, self.id
        if request.type == ADD_SERVER:
            server = decode_server(entry.value)
            if server.id in self.voters():
                return False, self.last + 1, self.id
            self.join = LegacyJoin(server)
        else:
            server_id = decode_server_id(entry.value)
            if server_id == self.id or server_id not in self.voters():
                return False, self.last + 1, self.id
            self.removing = server_id
            peer = self.peers.get(server_id)
            if peer is not None:
                disk = self.disk
                self._send(
                    peer,
                    Request(
                        LEAVE_CLUSTER, self.id, server_id, disk.term, 0, self.last, disk.commit
                    ),
                )
        return True, self.last + 1, self.id

    def _vote(self, request: Request) -> bool:
        disk = self.disk
        if request.term > disk.term:
            disk.term, disk.vote = request.term, 0
            if self.role != "follower":
                self.role, self.timer = "follower", self.tick
            self.leader = -1
        last_term = self.term_of(self.last)
        if not disk.entries and disk.before:
            last_term = 0  # an emptied log is compared as if its last term were 0
            if (request.previous_term, request.previous_index) < (disk.before_term, disk.before):
                self.quirks["emptied_voter"] += 1
        granted = (
            request.term == disk.term
            and disk.vote in (0, request.source)
            and (request.previous_term, request.previous_index) >= (last_term, self.last)
        )
        if granted:
            disk.vote = request.source  # its timer goes on
        return granted

    def _append(self, request: Request) -> tuple[bool, int, int]:
        disk = self.disk
        if request.term < disk.term:
            return False, self.last + 1, request.source
        if self.role == "leader":
            raise Died
        self._heard(request.source)
        previous, entries = request.previous_index, request.entries
        held = previous == 0 or disk.before <= previous <= self.last
        if not held or (previous and self.term_of(previous) != request.previous_term):
            return False, max(1, min(self.last + 1, previous)), request.source
        for index, entry in enumerate(entries, previous + 1):
            if index <= disk.before:
                continue
            if index > self.last or self.term_of(index) != entry.term:
                self._write(index, entry)
        proven = previous + len(entries)
        if min(request.commit, self.last) > max(proven, disk.commit):
            self.quirks["unproven_commit"] += 1
        self._commit(request.commit)
        return True, proven + 1, request.source

    def _sync(self, request: Request) -> bool:
        """Overwrites, and copies the starts of a pack into its own index file unread."""
        (packed,) = request.entries
        start, entries = decode_log_pack(packed.value)
        index = request.previous_index + 1
        if index > self.last + 1:
            return False
        disk = self.disk
        del disk.entries[index - disk.before - 1 :]
        disk.commit = min(disk.commit, self.last)
        if start != sum(record_size(e) for e in disk.entries):
            self.quirks["broken_starts"] += 1
            raise Died  # the second pack with starts from 0: it cannot even restart
        for entry in entries:
            self._write(self.last + 1, entry)
        self.applied = min(self.applied, disk.commit)
        self._commit(self.last)
        return True

    def _install(self, request: Request) -> tuple[bool, int, int]:
        if request.term < self.disk.term:
            return False, 0, request.source
        if self.role == "leader":
            raise Died
        self._heard(request.source)
        (entry,) = request.entries
        block = decode_snapshot_block(entry.value)
        disk = self.disk
        if block.index <= disk.commit:
            return False, 0, request.source
        if block.offset == 0:
            self.receiving = bytearray()
        if block.offset != len(self.receiving):
            return True, len(self.receiving), request.source
        self.receiving += block.block
        end = len(self.receiving)
        if block.done:
            disk.snapshot, disk.entries = bytes(self.receiving), []
            disk.before, disk.before_term = block.index, block.term
            disk.commit, disk.records_size = block.index, 0
            self.base, self.applied = block.configuration, block.index
        return True, end, request.source
