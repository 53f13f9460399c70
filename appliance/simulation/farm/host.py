"""A process of ours around the core: a disk, one beat at a time, a life between two crashes."""

import json
from typing import Any

from appliance.base.json_text import parse_json
from appliance.base.prng import Prng
from appliance.cores.raft.effects import (
    Answer,
    AppendLog,
    Apply,
    Beat,
    CutLog,
    Halt,
    HangUp,
    Leave,
    MakeSnapshot,
    Mark,
    Readable,
    Refuse,
    Restore,
    Saved,
    SaveSnapshot,
    SaveState,
    Send,
    Word,
    Write,
)
from appliance.cores.raft.member import LEADER
from appliance.cores.raft.node import Node
from appliance.formats.raft_legacy.configuration import Configuration
from appliance.formats.raft_legacy.frame import Request, Response
from appliance.simulation.failure import require, violated
from appliance.simulation.farm.checkers import Checkers, link_of
from appliance.simulation.farm.fabric import Connection, Fabric
from appliance.simulation.farm.options import FarmOptions
from appliance.simulation.schedule import TICK_US


def id_of(endpoint: str) -> int:
    """The member behind an endpoint of a world."""
    return int(endpoint.removeprefix("tcp://n").partition(":")[0])


def endpoint_of(member: int) -> str:
    return f"tcp://n{member}:1"


class Host:
    """One member of ours. `saved` is its disk: what survives a crash."""

    pre_vote = True

    def __init__(
        self,
        *,
        id: int,
        options: FarmOptions,
        fabric: Fabric,
        checkers: Checkers,
        prng: Prng,
        configured: Configuration,
        saved: Saved,
    ) -> None:
        self.id, self.options, self.fabric, self.checkers = id, options, fabric, checkers
        self.prng, self.configured, self.saved = prng, configured, saved
        self.life, self.up, self.out = 0, False, False
        self.marks: dict[str, int] = {}

    # --- life -------------------------------------------------------------------------------------

    def start(self) -> None:
        """A new process on the disk as it is."""
        assert not self.up
        self.life, self.up = self.life + 1, True
        self.writing: Beat | None = None
        self.speaking = False
        self.inbox: list[tuple[str, object, object]] = []
        self.links: dict[int, Connection | None] = {}  # None: dialling
        self.waiting: dict[int, list[list[Any]]] = {}  # connection -> [token, answer] in order
        self.tokens: dict[int, tuple[Connection, list[Any]]] = {}
        self.token = 0
        self.reading: dict[int, int] = {}  # token -> the newest yes when it was asked
        self.index, self.chain = 0, b""
        self.led_term = 0
        saved = self.saved
        copy = Saved(
            saved.state, saved.snapshot, saved.before, saved.before_term, list(saved.entries)
        )
        self.node = Node(
            id=self.id,
            settings=self.options.settings,
            prng=self.prng.fork(),
            saved=copy,
            configured=self.configured,
            snapshot_fits=self._fits,
        )
        self.fabric.trace("start", self.id)
        self._beat()
        self.fabric.schedule.after(self.prng.below(TICK_US) + 1, self._tick, self.life)

    def crash(self) -> None:
        """What was being written is there completely, or not at all."""
        assert self.up
        self.up = False
        self.fabric.trace("crash", self.id)
        if self.writing is not None and self.prng.chance(1, 2):
            self._apply(self.writing.writes)
        for connection in self.fabric.connections:
            if connection.up and self.id in (connection.client, connection.server):
                # Else the other end only notices when it uses it. A legacy peer would wait for
                # ever: it has no timeout, so it is told, as the system of a dead process does.
                patient = not self.fabric.processes[connection.client].pre_vote
                if self.prng.chance(2, 3) or patient:
                    self.fabric.break_up(connection)

    def _tick(self, life: int) -> None:
        if not self.up or life != self.life:
            return
        if not self.busy:  # a process that waits for its disk loses the tick
            self.node.on_tick()
            self._beat()
        self.fabric.schedule.after(TICK_US, self._tick, life)

    @property
    def busy(self) -> bool:
        """In the middle of a beat: what arrives waits."""
        return self.writing is not None or self.speaking

    # --- inputs -----------------------------------------------------------------------------------

    def on_request(self, connection: Connection, request: Request) -> None:
        self._take("request", connection, request)

    def on_response(self, connection: Connection, response: Response) -> None:
        self._take("response", connection, response)

    def on_broken(self, connection: Connection) -> None:
        self._take("broken", connection, None)

    def read(self) -> None:
        """Somebody asks this member for what is current."""
        if self.up and not self.busy:
            self.token += 1
            self.reading[self.token] = self.checkers.newest_yes
            self.node.on_read(self.token)
            self._beat()

    def yield_leadership(self) -> bool:
        """As an operator asks for it; False: this member does not lead, or is busy."""
        if not self.up or self.busy or not self.node.yield_leadership():
            return False
        self._beat()
        return True

    def _take(self, kind: str, connection: Connection, what: object) -> None:
        self.inbox.append((kind, connection, what))
        if not self.busy:
            self._drain()

    def _drain(self) -> None:
        inbox, self.inbox = self.inbox, []
        for kind, connection, what in inbox:
            assert isinstance(connection, Connection)
            if kind == "request" and isinstance(what, Request):
                self._request(connection, what)
            elif kind == "open":
                self._opened(connection)
            elif self.links.get(connection.server) is not connection:
                continue
            elif isinstance(what, Response):
                self.node.on_response(connection.server, what)
            else:
                del self.links[connection.server]
                self.node.on_disconnected(connection.server)
        self._beat()

    def _request(self, connection: Connection, request: Request) -> None:
        self.token += 1
        slot: list[Any] = [self.token, None]
        self.waiting.setdefault(connection.number, []).append(slot)
        self.tokens[self.token] = (connection, slot)
        self.node.on_request(self.token, request)

    # --- beats ------------------------------------------------------------------------------------

    def _beat(self) -> None:
        """Write, then speak; nothing of the next beat before."""
        beat = self.node.take()
        if not beat.writes:
            self._speak(beat.words)
            return
        self.writing = beat
        delay_us = self.prng.below(self.options.disk_us_max + 1)
        self.fabric.schedule.after(delay_us, self._written, self.life)

    def _written(self, life: int) -> None:
        if not self.up or life != self.life:
            return
        assert self.writing is not None
        beat, self.writing = self.writing, None
        self._apply(beat.writes)
        self._speak(beat.words)

    def _apply(self, writes: list[Write]) -> None:
        saved = self.saved
        for write in writes:
            before = saved.entries[-1].term if saved.entries else saved.before_term
            self.checkers.on_write(self.id, write, self._leads_since(write), before)
            if isinstance(write, SaveState):
                saved.state = write.state
            elif isinstance(write, CutLog):
                del saved.entries[write.index - saved.before - 1 :]
            elif isinstance(write, AppendLog):
                assert write.first == saved.before + len(saved.entries) + 1
                saved.entries += write.entries
            elif isinstance(write, SaveSnapshot):
                del saved.entries[: max(0, write.before - saved.before)]
                saved.snapshot = write.snapshot
                saved.before, saved.before_term = write.before, write.before_term

    def _leads_since(self, write: Write) -> bool:
        """Whether a cut comes from a leader; a beat that began as follower may hold one."""
        return isinstance(write, CutLog) and self.led_term == self.node.member.term

    def _speak(self, words: list[Word]) -> None:
        self._watch()
        self.speaking = True
        for word in words:
            self._perform(word)
            if not self.up:
                return
        self._connect()
        self.speaking = False
        if self.inbox:
            self._drain()
        elif self.node.member.beat.writes or self.node.member.beat.words:
            self._beat()

    def _watch(self) -> None:
        member = self.node.member
        if member.role == LEADER and self.led_term != member.term:
            self.led_term = member.term
            self.fabric.trace("lead", self.id, member.term)
            last = member.term_first - 1
            self.checkers.on_leader(self.id, member.term, last, member.log.term_of)

    def _perform(self, word: Word) -> None:
        if isinstance(word, Send):
            link = self.links.get(word.peer)
            if link is not None:
                self.fabric.send(link, word.request)
        elif isinstance(word, Answer):
            self._answer(word)
        elif isinstance(word, Refuse):
            self.marks[word.reason] = self.marks.get(word.reason, 0) + 1
            self.fabric.break_up(self.tokens[word.token][0])
        elif isinstance(word, HangUp):
            link = self.links.pop(word.peer, None)
            if link is not None:
                self.fabric.break_up(link)
        elif isinstance(word, Apply):
            self._applied(word)
        elif isinstance(word, Restore):
            state = parse_json(word.snapshot.data)
            self.index, self.chain = state["index"], bytes.fromhex(state["chain"])
            self.checkers.on_state(self.id, self.index, self.chain)
        elif isinstance(word, MakeSnapshot):
            self.node.on_snapshot(word.index, self._snapshot(word.index))
        elif isinstance(word, Mark):
            self.marks[word.name] = self.marks.get(word.name, 0) + 1
        elif isinstance(word, Readable):
            known = self.reading.pop(word.token)
            if word.index is not None:
                self.checkers.on_read(self.id, known, word.index)
        elif isinstance(word, Leave):
            self.out = True
            self.crash()
        elif isinstance(word, Halt):
            violated("halt", f"member {self.id}: {word.reason}")

    def _answer(self, word: Answer) -> None:
        connection, slot = self.tokens.pop(word.token)
        slot[1] = word.response
        queue = self.waiting[connection.number]
        while queue and queue[0][1] is not None:
            self.fabric.send(connection, queue.pop(0)[1])

    def _applied(self, word: Apply) -> None:
        require(
            word.first == self.index + 1,
            "state machine safety",
            f"member {self.id} is told entry {word.first} after {self.index}",
        )
        self.checkers.on_commit(self.id, self.node.member.term, word.first, word.entries)
        for index, entry in enumerate(word.entries, word.first):
            self.index, self.chain = index, link_of(self.chain, index, entry)
        self.checkers.on_state(self.id, self.index, self.chain)

    def _snapshot(self, index: int) -> bytes:
        chain = self.checkers.chain[index].hex()
        return json.dumps({"index": index, "chain": chain, "fill": "x" * (index % 50)}).encode()

    @staticmethod
    def _fits(data: bytes) -> bool:
        return data.startswith(b"{")

    # --- connections ------------------------------------------------------------------------------

    def _connect(self) -> None:
        """Hold a connection to each peer; drop those to others."""
        peers = self.node.peers
        for peer in [p for p in self.links if p not in peers]:
            link = self.links.pop(peer)
            if link is not None:
                self.fabric.break_up(link)
        for peer, endpoint in peers.items():
            if peer not in self.links:
                self.links[peer] = None
                self._dial(peer, id_of(endpoint))

    def _dial(self, peer: int, target: int) -> None:
        life = self.life

        def done(connection: Connection | None) -> None:
            if self.links.get(peer, connection) is not None:
                return
            if connection is None:
                delay_us = self.prng.between(1, 8) * TICK_US
                self.fabric.schedule.after(delay_us, again)
            else:
                self.links[peer] = connection
                self._take("open", connection, None)

        def again() -> None:
            if self.up and life == self.life and self.links.get(peer, 0) is None:
                self._dial(peer, target)

        self.fabric.dial(self.id, target, done)

    def _opened(self, connection: Connection) -> None:
        if self.links.get(connection.server) is connection:
            server = self.fabric.processes[connection.server]
            self.node.on_connected(connection.server, pre_vote=server.pre_vote)
            if isinstance(server, Host) and server.up:  # as its login tells
                hint = server.node.hint()
                self.node.on_hint(hint.index, hint.members)
