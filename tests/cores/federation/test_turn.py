"""Whose turn it is to carry: of the primary, or of whom the farm chose, and of one at a time."""

from appliance.cores.federation.turn import NOBODY, PATIENCE_MS, SILENT_MS_MAX, Turn
from appliance.formats.status.replica import ReplicaStatus
from tests.statuses import replica_status

NODES = {"aa": 0, "bb": 1, "cc": 2, "dd": 3}
STEP_MS = 250
TICK_MS = 10


class Group:
    """Nodes of one shard, three that vote and a standby, and the claims in their log."""

    def __init__(self) -> None:
        self.turns = [Turn(node, NODES) for node in range(4)]
        self.generations = [0] * 4
        self.claims: list[int] = []
        self.primary = 0
        self.up = {0, 1, 2, 3}
        self.idle: set[int] = set()  # whose federation does not run, though the replica does
        self.unheard: set[int] = set()  # by the primary, though they hear it
        self.heard_ms = [0] * 4
        self.now_ms = 1_000_000

    def choose(self, node: int) -> None:
        for turn in self.turns:
            turn.chosen = node

    def status(self, node: int) -> ReplicaStatus:
        newest = self.claims[-1] if self.claims else 0
        peers = {
            i: {"view": 3, "commit_min": 0, "checkpoint": 0, "silent_ticks": ms // TICK_MS}
            for i, ms in enumerate(self.heard_ms)
        }
        return replica_status(
            carrying={"generation": len(self.claims), "node": newest},
            role="primary" if node == self.primary else "backup",
            members=list(NODES),
            replica_count=3,
            peers=peers,
            tick_ms=TICK_MS,
        )

    def carries(self) -> list[int]:
        return [node for node, generation in enumerate(self.generations) if generation]

    def run(self, ms: int) -> list[int]:
        """For so long; who carries then."""
        for _ in range(0, ms, STEP_MS):
            self.now_ms += STEP_MS
            for node in range(4):
                is_heard = node in self.up - self.unheard
                self.heard_ms[node] = 0 if is_heard else self.heard_ms[node] + STEP_MS
                if node not in self.up or node in self.idle:
                    self.generations[node] = 0
                    continue
                turn, generation = self.turns[node], self.generations[node]
                if not turn.is_ours(self.status(node), generation, self.now_ms):
                    self.generations[node] = 0
                elif not generation:
                    self.claims.append(node)
                    self.generations[node] = len(self.claims)
        return self.carries()


def test_without_a_farm_the_primary_carries_and_gives_up_when_it_is_none() -> None:
    group = Group()
    assert group.run(STEP_MS) == [0]
    group.primary = 2
    assert group.run(STEP_MS) == [2]
    assert group.run(60_000) == [2] and group.claims == [0, 2]


def test_whom_the_farm_chooses_carries_and_the_one_before_goes_on_until_then() -> None:
    group = Group()
    group.run(STEP_MS)
    group.choose(1)
    assert group.run(2 * STEP_MS) == [1]
    group.primary = 2
    assert group.run(60_000) == [1], "another primary is no reason to move"
    group.idle.add(2)
    group.choose(2)
    assert group.run(PATIENCE_MS - STEP_MS) == [1], "who does not claim delays nobody"
    group.idle.clear()
    assert group.run(2 * STEP_MS) == [2]
    assert group.claims == [0, 1, 2]


def test_the_primary_carries_while_it_does_not_hear_whom_the_farm_chose() -> None:
    group = Group()
    group.choose(1)
    assert group.run(STEP_MS) == [1]
    group.up.remove(1)
    assert group.run(SILENT_MS_MAX) == []
    assert group.run(2 * STEP_MS) == [0]
    group.up.add(1)
    assert group.run(2 * STEP_MS) == [1], "who is back and chosen carries again"
    assert group.run(60_000) == [1] and group.claims == [1, 0, 1]


def test_the_primary_carries_where_the_chosen_node_does_not_claim() -> None:
    group = Group()
    group.idle.add(1)
    group.choose(1)
    assert group.run(PATIENCE_MS) == []
    assert group.run(STEP_MS) == [0]
    assert group.run(60_000) == [0] and group.claims == [0]


def test_a_node_that_is_described_later_can_be_chosen() -> None:
    group = Group()
    for turn in group.turns:
        turn.nodes = {name: node for name, node in NODES.items() if node != 1}
    group.choose(1)
    assert group.run(STEP_MS) == [0], "a stranger yet"
    for turn in group.turns:
        turn.nodes = NODES
    assert group.run(2 * STEP_MS) == [1]


def test_a_standby_or_a_stranger_is_not_waited_for() -> None:
    for chosen in (3, 7, NOBODY):
        group = Group()
        group.choose(chosen)
        assert group.run(STEP_MS) == [0]


def test_the_primary_and_one_that_it_does_not_hear_claim_in_turns_with_pauses() -> None:
    group = Group()
    group.choose(1)
    group.unheard.add(1)
    group.run(60_000)
    assert 2 < len(group.claims) <= 2 * (60_000 // PATIENCE_MS + 1)
