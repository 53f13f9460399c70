"""Members joined back to back: no time passes but by `tick`, nothing is lost but by `cut`."""

from collections import deque
from typing import Any

from appliance.base.prng import Prng
from appliance.cores.raft.effects import (
    JOINING,
    Answer,
    AppendLog,
    Apply,
    CutLog,
    HangUp,
    HardState,
    MakeSnapshot,
    Readable,
    Refuse,
    Restore,
    Saved,
    SaveSnapshot,
    SaveState,
    Send,
)
from appliance.cores.raft.idle import idle_ticks
from appliance.cores.raft.node import Node
from appliance.cores.raft.settings import Settings
from appliance.formats.raft_legacy.configuration import Configuration, Server
from appliance.formats.raft_legacy.frame import (
    APPLICATION,
    CLIENT_REQUEST,
    PRE_VOTE_RESPONSE,
    VOTE_RESPONSE,
    Entry,
    Request,
    Response,
)

SETTINGS = Settings(
    election_ticks_min=10,
    election_ticks_max=20,
    heartbeat_ticks=3,
    client_ticks=60,
    join_ticks=80,
    stop_gap=2,
    snapshot_distance=1 << 40,
    snapshot_lag=0,
)


def server(member: int) -> Server:
    return Server(member, f"tcp://n{member}:1")


def configured(*members: int) -> Configuration:
    return Configuration(0, 0, tuple(server(member) for member in members))


def value(text: bytes, term: int = 0) -> Entry:
    return Entry(term, APPLICATION, text)


def lone(member: int, *members: int, saved: Saved | None = None, **settings: Any) -> Node:
    """One member that is spoken to by hand."""
    return Node(
        id=member,
        settings=Settings(**{**as_dict(SETTINGS), **settings}),
        prng=Prng(member),
        saved=saved or Saved(),
        configured=configured(*members),
    )


def as_dict(settings: Settings) -> dict[str, Any]:
    return {name: getattr(settings, name) for name in Settings.__slots__}


def lead_by_hand(node: Node, voter: int = 2) -> None:
    """Elect a lone member with the answers of one voter."""
    for peer in node.peers:
        node.on_connected(peer, pre_vote=True)
    while node.member.role == "follower":
        node.on_tick()
    member = node.member
    if member.role == "pre_candidate":
        node.on_response(voter, Response(PRE_VOTE_RESPONSE, voter, 1, member.term, 0, True))
    assert member.role == "candidate"
    node.on_response(voter, Response(VOTE_RESPONSE, voter, 1, member.term, 0, True))
    assert member.role == "leader"


def answers(node: Node) -> list[Response]:
    return [word.response for word in node.take().words if isinstance(word, Answer)]


def ask(node: Node, request: Request) -> Response | str | None:
    """The answer, the word of a refusal, or nothing yet."""
    node.take()
    node.on_request(1, request)
    for word in node.take().words:
        if isinstance(word, Answer):
            return word.response
        if isinstance(word, Refuse):
            return word.reason
    return None


class Group:
    """Members by id; `applied` is what each one's application was told."""

    def __init__(
        self, *members: int, joiners: tuple[int, ...] = (), pre_vote: bool = True, **settings: Any
    ) -> None:
        self.settings = Settings(**{**as_dict(SETTINGS), **settings})
        self.pre_vote = pre_vote
        self.saved: dict[int, Saved] = {}
        self.nodes: dict[int, Node] = {}
        self.applied: dict[int, list[tuple[int, Entry]]] = {}
        self.first = configured(*members)
        self.cut: set[tuple[int, int]] = set()
        self.linked: dict[tuple[int, int], bool] = {}
        self.queue: deque[tuple[int, int, Request | Response]] = deque()
        self.tokens: dict[int, int] = {}
        self.token = 0
        self.replies: dict[int, Response | str] = {}
        self.reads: dict[int, int | None] = {}
        for member in members:
            self.start(member, Saved())
        for member in joiners:
            self.start(member, Saved(HardState(standing=JOINING)))

    def start(self, member: int, saved: Saved | None = None) -> None:
        """A first start, or another one on what was durable."""
        disk = self.saved[member] if saved is None else saved
        self.saved[member] = disk
        for pair in [p for p in self.linked if member in p]:
            self.unlink(*pair)
        joins = disk.state.standing == JOINING
        self.applied[member] = []
        self.nodes[member] = Node(
            id=member,
            settings=self.settings,
            prng=Prng(member + 17),
            saved=Saved(
                disk.state, disk.snapshot, disk.before, disk.before_term, list(disk.entries)
            ),
            configured=configured() if joins else self.first,
        )
        self.beat(member)

    # --- connections ------------------------------------------------------------------------------

    def isolate(self, *members: int) -> None:
        """Nothing passes between these and the others; connections end."""
        for a in self.nodes:
            for b in self.nodes:
                if (a in members) != (b in members):
                    self.cut.add((a, b))
        for pair in [p for p in self.linked if p in self.cut]:
            self.unlink(*pair)

    def heal(self) -> None:
        self.cut.clear()

    def unlink(self, a: int, b: int) -> None:
        if self.linked.pop((a, b), False):
            self.queue = deque(m for m in self.queue if m[:2] not in ((a, b), (b, a)))
            self.nodes[a].on_disconnected(b)

    def link(self) -> None:
        for member, node in self.nodes.items():
            for peer in node.peers:
                pair = (member, peer)
                if pair in self.linked or peer not in self.nodes or pair in self.cut:
                    continue
                self.linked[pair] = True
                node.on_connected(peer, pre_vote=self.pre_vote)
                self.beat(member)

    # --- running ----------------------------------------------------------------------------------

    def beat(self, member: int) -> None:
        node, saved = self.nodes[member], self.saved[member]
        beat = node.take()
        for write in beat.writes:
            if isinstance(write, SaveState):
                saved.state = write.state
            elif isinstance(write, CutLog):
                del saved.entries[write.index - saved.before - 1 :]
            elif isinstance(write, AppendLog):
                saved.entries += write.entries
            elif isinstance(write, SaveSnapshot):
                del saved.entries[: max(0, write.before - saved.before)]
                saved.snapshot = write.snapshot
                saved.before, saved.before_term = write.before, write.before_term
        for word in beat.words:
            self.perform(member, word)
        again = node.member.beat
        if again.writes or again.words:
            self.beat(member)

    def perform(self, member: int, word: Any) -> None:
        if isinstance(word, Send):
            if self.linked.get((member, word.peer)):
                self.queue.append((member, word.peer, word.request))
        elif isinstance(word, Answer):
            asker = self.tokens.pop(word.token)
            if asker:
                self.queue.append((member, asker, word.response))
            else:
                self.replies[word.token] = word.response
        elif isinstance(word, Refuse):
            asker = self.tokens.pop(word.token)
            if asker:
                self.unlink(asker, member)
            else:
                self.replies[word.token] = word.reason
        elif isinstance(word, HangUp):
            self.linked.pop((member, word.peer), None)
        elif isinstance(word, Apply):
            self.applied[member] += enumerate(word.entries, word.first)
        elif isinstance(word, Restore):
            self.applied[member] = [(word.snapshot.index, Entry(0, 0, word.snapshot.data))]
        elif isinstance(word, Readable):
            self.reads[word.token] = word.index
        elif isinstance(word, MakeSnapshot):
            self.nodes[member].on_snapshot(word.index, b"state at %d" % word.index)

    def settle(self) -> None:
        """Deliver until nothing is on its way."""
        self.link()
        for _ in range(10_000):
            if not self.queue:
                return
            source, target, message = self.queue.popleft()
            if isinstance(message, Response):
                if self.linked.get((target, source)):
                    self.nodes[target].on_response(source, message)
            elif self.linked.get((source, target)):
                self.token += 1
                self.tokens[self.token] = source
                self.nodes[target].on_request(self.token, message)
            self.beat(target)
            self.link()
        raise AssertionError("it does not come to rest")

    def tick(self, count: int = 1) -> None:
        for _ in range(count):
            for member, node in self.nodes.items():
                idle = idle_ticks(node.member)
                node.on_tick()
                told = node.member.beat
                assert not idle or not (told.writes or told.words), "it said that nothing was due"
                self.beat(member)
            self.settle()

    def ask(self, member: int, request: Request) -> int:
        """The token of a request from outside; its reply will stand in `replies`."""
        self.token += 1
        token = self.token
        self.tokens[token] = 0
        self.nodes[member].on_request(token, request)
        self.beat(member)
        self.settle()
        return token

    def post(self, member: int, text: bytes) -> Response | str | None:
        """Post a value; the reply, if there is one already."""
        token = self.ask(member, Request(CLIENT_REQUEST, entries=(value(text),)))
        return self.replies.get(token)

    def read(self, member: int) -> int:
        self.token += 1
        token = self.token
        self.nodes[member].on_read(token)
        self.beat(member)
        self.settle()
        return token

    # --- looking ----------------------------------------------------------------------------------

    def leaders(self) -> list[int]:
        return [m for m, node in self.nodes.items() if node.member.role == "leader"]

    def elect(self) -> int:
        """Tick until exactly one leads, and everybody follows it."""
        for _ in range(400):
            found = self.leaders()
            if len(found) == 1 and all(
                node.member.leader == found[0]
                for m, node in self.nodes.items()
                if node.member.standing == "member" and not any(m in pair for pair in self.cut)
            ):
                return found[0]
            self.tick()
        raise AssertionError("nobody leads")

    def values(self, member: int) -> list[bytes]:
        return [
            e.value for _, e in self.applied[member] if e.type == APPLICATION and e.value != b"{}"
        ]
