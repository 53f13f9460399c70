"""What a JRaft server does with packs and snapshots of ours, by the layout of its files alone."""

import struct
import zlib
from collections import deque

import pytest

from appliance.cores.raft.effects import (
    AppendLog,
    CutLog,
    HardState,
    Restore,
    Saved,
    SaveSnapshot,
    Send,
    Snapshot,
)
from appliance.cores.raft.node import Node
from appliance.formats.raft_legacy.configuration import Configuration, encode_server
from appliance.formats.raft_legacy.frame import (
    ADD_SERVER,
    ANSWER_OF,
    APPEND_ENTRIES,
    CLUSTER_SERVER,
    INSTALL_SNAPSHOT,
    JOIN_CLUSTER,
    SNAPSHOT_SYNC,
    SYNC_LOG,
    Entry,
    Request,
    Response,
    decode_request,
    encode_response,
)
from appliance.formats.raft_legacy.snapshot_block import (
    SnapshotBlock,
    decode_snapshot_block,
    encode_snapshot_block,
)
from tests.cores.raft.group import ask, configured, lead_by_hand, lone, server, value
from tests.formats.raft_legacy.vectors import vector, vectors

JOINER = 4
FILLED = 16  # entries of the recorded conversation when its fourth server joined


def recorded_log() -> list[Entry]:
    """The Configuration and the 15 values that the servers of the recorded conversation held."""
    (first,) = decode_request(vector("V3")).entries
    return [first, *(value(b"key%d:value%d" % (n, n), 1) for n in range(FILLED - 1))]


class Follower:
    """Says yes to everything."""

    def answer(self, request: Request) -> tuple[bool, int]:
        return True, request.previous_index + len(request.entries) + 1


class Store(Follower):
    """The files of a JRaft joiner: a pack's starts and records go into them as they are."""

    def __init__(self) -> None:
        self.first = 1  # the entry that its file of records begins with
        self.starts: list[int] = [0]
        self.records = struct.pack(">qB", 1, 2) + b"it elected itself and wrote an entry 1"
        self.packs: list[bytes] = []
        self.asked: list[int] = []

    @property
    def free(self) -> int:
        return self.first + len(self.starts)

    def answer(self, request: Request) -> tuple[bool, int]:
        self.asked.append(request.type)
        if request.type == JOIN_CLUSTER:
            return True, self.free
        if request.type == INSTALL_SNAPSHOT:
            block = decode_snapshot_block(request.entries[0].value)
            self.first, self.starts, self.records = block.index + 1, [], b""
            return True, block.offset + len(block.block)
        if request.type == SYNC_LOG:
            self._sync(request)
            return True, self.free
        return super().answer(request)

    def _sync(self, request: Request) -> None:
        keep = request.previous_index + 1 - self.first
        assert 0 <= keep <= len(self.starts)
        if keep < len(self.starts):
            self.records = self.records[: self.starts[keep]]
            del self.starts[keep:]
        whole = zlib.decompress(request.entries[0].value, 31)
        index_size, data_size = struct.unpack_from(">ii", whole)
        self.starts += struct.unpack_from(f">{index_size // 8}q", whole, 8)
        self.records += whole[8 + index_size :]
        self.packs.append(whole)
        assert len(whole) == 8 + index_size + data_size

    def entries(self) -> list[Entry]:
        """Read by the starts: each record goes on to the next one, the last to the end."""
        found = []
        for start, end in zip(self.starts, [*self.starts[1:], len(self.records)], strict=True):
            term, kind = struct.unpack_from(">qB", self.records, start)
            found.append(Entry(term, kind, self.records[start + 9 : end]))
        return found


def talk(node: Node, others: dict[int, Follower], requests: int = 1000) -> None:
    """Answer what is sent, one after the other, until nothing is on its way."""
    waiting: deque[tuple[int, Request]] = deque()
    for _ in range(requests):
        for peer in node.peers:
            if peer in others and not node.member.peers[peer].connected:
                node.on_connected(peer, pre_vote=False)
        waiting += [(w.peer, w.request) for w in node.take().words if isinstance(w, Send)]
        if not waiting:
            return
        peer, request = waiting.popleft()
        accepted, following = others[peer].answer(request)
        kind = ANSWER_OF[request.type]
        node.on_response(peer, Response(kind, peer, 1, request.term, following, accepted))
    raise AssertionError("it does not come to rest")


def elected(saved: Saved, **settings: int) -> Node:
    """Member 1, which leads on such a log and has said nothing yet."""
    node = lone(1, 1, 2, 3, saved=saved, **settings)
    lead_by_hand(node)
    for peer in node.peers:
        node.on_disconnected(peer)
    node.take()
    return node


def leading(saved: Saved, **settings: int) -> tuple[Node, dict[int, Follower]]:
    """It and the two others, who know by now that its first entry is committed."""
    node = elected(saved, **settings)
    others: dict[int, Follower] = {2: Follower(), 3: Follower()}
    talk(node, others)
    for _ in range(4):
        node.on_tick()
        talk(node, others)
    assert node.member.commit == node.member.log.last
    return node, others


def join(node: Node, others: dict[int, Follower], store: Store) -> None:
    entry = Entry(0, CLUSTER_SERVER, encode_server(server(JOINER)))
    others[JOINER] = store
    node.on_request(1, Request(ADD_SERVER, entries=(entry,)))
    talk(node, others)


def held(node: Node, store: Store) -> list[Entry]:
    return list(node.member.log.take(store.first, store.free - 1))


def test_the_second_pack_is_the_recorded_one_byte_for_byte() -> None:
    saved = Saved(HardState(term=1, commit=FILLED), entries=recorded_log())
    node, others = leading(saved, sync_entries_max=5)
    store = Store()
    join(node, others, store)
    assert store.packs[1] == vector("V11", "unpacked")
    assert len(store.packs) == 4
    assert store.entries() == held(node, store)
    assert store.entries()[0] == recorded_log()[0], "what it wrote itself is overwritten"
    assert node.member.log.last == store.free == FILLED + 2, "and then it is listed"


def test_a_pack_that_was_lost_is_sent_again_with_the_same_starts() -> None:
    class Losing(Store):
        def _sync(self, request: Request) -> None:
            if len(self.packs) == 1 and not self.asked.count(JOIN_CLUSTER) > 1:
                self.asked.append(JOIN_CLUSTER)
                node.on_disconnected(JOINER)
            else:
                super()._sync(request)

    saved = Saved(HardState(term=1, commit=FILLED), entries=recorded_log())
    node, others = leading(saved, sync_entries_max=5)
    store = Losing()
    join(node, others, store)
    assert store.packs[1] == vector("V11", "unpacked")
    assert store.entries() == held(node, store)


def test_a_joiner_that_is_close_gets_a_pack_all_the_same() -> None:
    saved = Saved(HardState(term=1, commit=2), entries=recorded_log()[:2])
    node, others = leading(saved, stop_gap=1000)
    store = Store()
    join(node, others, store)
    assert len(store.packs) == 1
    assert store.entries() == held(node, store)


def test_starts_begin_anew_behind_a_snapshot_that_a_joiner_takes_between_packs() -> None:
    class Compacting(Store):
        """The leader makes a snapshot while it takes its first pack."""

        def _sync(self, request: Request) -> None:
            super()._sync(request)
            if len(self.packs) == 1:
                node.on_snapshot(10, b"state at 10")

    saved = Saved(HardState(term=1, commit=FILLED), entries=recorded_log())
    node, others = leading(saved, sync_entries_max=5, snapshot_distance=10)
    node.member.snapshot_asked = 10
    store = Compacting()
    join(node, others, store)
    assert store.asked.count(INSTALL_SNAPSHOT) == 1
    assert (store.first, store.starts[0], len(store.packs)) == (11, 0, 3)
    assert store.entries() == held(node, store)


# --- snapshots that are not newer -----------------------------------------------------------------

BLOCKS = (b"first", b"second", b"last")  # of a snapshot up to entry 4


def holding(commit: int) -> Node:
    entries = recorded_log()[:6]
    return lone(3, 1, 2, 3, saved=Saved(HardState(term=3, commit=commit), entries=entries))


def install(node: Node, offset: int, block: bytes, done: bool) -> Response | str | None:
    """What member 3 answers to a block; nothing may have been written or told its application."""
    text = SnapshotBlock(4, 1, configured(1, 2, 3), offset, block, done)
    entry = Entry(3, SNAPSHOT_SYNC, encode_snapshot_block(text))
    node.take()
    answer = ask(node, Request(INSTALL_SNAPSHOT, 1, 3, 3, 1, 4, 6, (entry,)))
    assert node.member.receiving is None
    return answer


@pytest.mark.parametrize("commit", [4, 5, 6])
def test_a_jraft_leader_comes_to_the_end_of_a_snapshot_that_is_not_newer(commit: int) -> None:
    """It repeats a block that is answered no without a pause, and goes on behind what is held."""
    node = holding(commit)
    whole, offset, rounds = b"".join(BLOCKS), 0, 0
    while offset < len(whole):
        block = whole[offset : offset + 5]
        answer = install(node, offset, block, offset + len(block) == len(whole))
        assert isinstance(answer, Response)
        assert answer.accepted, "a no is repeated for ever"
        offset, rounds = answer.next_index, rounds + 1
    assert rounds == -(-len(whole) // 5)
    member = node.member
    assert (member.commit, member.log.last, member.log.before) == (commit, 6, 0)
    assert member.log.snapshot is None


def test_a_snapshot_that_is_not_newer_is_neither_written_nor_told() -> None:
    node = holding(4)
    node.take()
    text = SnapshotBlock(4, 1, configured(1, 2, 3), 0, b"state", True)
    entry = Entry(3, SNAPSHOT_SYNC, encode_snapshot_block(text))
    node.on_request(1, Request(INSTALL_SNAPSHOT, 1, 3, 3, 1, 4, 6, (entry,)))
    beat = node.take()
    assert not [w for w in beat.writes if isinstance(w, SaveSnapshot | CutLog | AppendLog)]
    assert not [w for w in beat.words if isinstance(w, Restore)]


def test_the_recorded_last_block_has_the_recorded_answer_where_all_of_it_is_held() -> None:
    entries = [*recorded_log(), *(value(b"b", 1) for _ in range(241 - FILLED))]
    node = lone(3, 1, 2, 3, saved=Saved(HardState(term=3, commit=241), entries=entries))
    answer = ask(node, decode_request(vector("V14")))
    assert isinstance(answer, Response)
    assert encode_response(answer) == vectors("response")[-1][1]


class Ahead(Follower):
    """A JRaft follower that holds more than the snapshot; `asked`: types and places."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, int]] = []

    def answer(self, request: Request) -> tuple[bool, int]:
        self.asked.append((request.type, request.previous_index))
        if request.type == INSTALL_SNAPSHOT:
            return False, 0
        if request.type == APPEND_ENTRIES and len(self.asked) == 1:
            return False, 2  # it asks for less than it holds, as it may
        return super().answer(request)


def test_a_jraft_followers_no_to_a_snapshot_ends_it_and_appends_go_on_behind() -> None:
    snapshot = Snapshot(10, 1, Configuration(1, 0, configured(1, 2, 3).servers), b"state" * 100)
    saved = Saved(
        HardState(term=1, commit=FILLED),
        snapshot,
        before=10,
        before_term=1,
        entries=recorded_log()[10:],
    )
    node, told = elected(saved, snapshot_block_size=50), Ahead()
    talk(node, {2: told, 3: Follower()}, requests=50)
    last = node.member.log.last
    assert told.asked[:3] == [
        (APPEND_ENTRIES, FILLED),
        (INSTALL_SNAPSHOT, 10),
        (APPEND_ENTRIES, 10),
    ]
    assert node.member.peers[2].match == node.member.commit == last
