"""Seeds of the world of objects, and mistakes that it must find."""

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable

import pytest

from appliance.base.prng import Prng
from appliance.cores.metadata import packets, set, states
from appliance.cores.metadata.change import Change
from appliance.cores.metadata.diff import Diff
from appliance.cores.metadata.exchange import Exchange
from appliance.cores.metadata.replica import Replica
from appliance.cores.metadata.session import Session
from appliance.cores.metadata.state_table import StateTable
from appliance.cores.metadata.sync_point import SyncPoint
from appliance.formats.rdx.stamps import count_record, counts, elements
from appliance.simulation.objects.options import draw
from appliance.simulation.objects.report import line_of, lines_of
from appliance.simulation.objects.world import Outcome, World

FIXED, FRESH = 270, 12
PARTS = 10
HERE = 1  # of them in a normal run, all of them in a soak
SEEDS_PER_PLANT_MAX = 150


def run(seed: int) -> Outcome:
    return World(draw(seed)).run()


def run_all(seeds: list[int]) -> Counter[str]:
    """What happened in them, all together; fails with the first that broke."""
    counts: Counter[str] = Counter()
    for seed in seeds:
        outcome = run(seed)
        assert not outcome.failure, f"{line_of(outcome)}\n{outcome.failure}"
        counts.update(outcome.counts)
    return counts


@pytest.mark.parametrize(
    "part",
    [*range(HERE), *(pytest.param(part, marks=pytest.mark.soak) for part in range(HERE, PARTS))],
)
def test_replicas_agree_whatever_happens_to_them(part: int) -> None:
    counts = run_all(list(range(part, FIXED, PARTS)))
    # each part has seen the faults
    for name in ("connections_lost", "crashes", "diffs_dropped", "held_back", "diffs_applied"):
        assert counts[name] > 0, name


def test_fresh_seeds(seed: int) -> None:
    run_all([1_000_000 + Prng(seed).below(1 << 30) + number for number in range(FRESH)])


@pytest.mark.soak
def test_fresh_seeds_for_long(seed: int, soak_seconds: int) -> None:
    end, number = time.monotonic() + soak_seconds, 0
    first = 2_000_000 + Prng(seed).below(1 << 30)
    while time.monotonic() < end:
        run_all([first + number])
        number += 1


def test_an_equal_seed_has_an_equal_trace_in_another_process() -> None:
    seeds = (3, 17, 40)
    script = (
        "import json; from appliance.simulation.objects.report import lines_of; "
        f"print(json.dumps([line for n in {seeds} for line, _ in lines_of(n, 1)]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | {"PYTHONHASHSEED": "4242"},
        check=True,
        capture_output=True,
        text=True,
    )
    here = [line for number in seeds for line, _ in lines_of(number, 1)]
    assert json.loads(done.stdout) == here
    assert len({line.split("trace=")[1] for line in here}) == len(seeds)


# --- mistakes -------------------------------------------------------------------------------------


def end_before_the_diff_is_complete(patch: pytest.MonkeyPatch) -> None:
    """V after the first packet of data."""
    take = Diff.take

    def early(self: Diff) -> list[bytes]:
        made = take(self)
        if made and self.fields_sent and not self._ended:
            self._ended = True
            vectors = [(block, self._blocks[block]) for block in sorted(self._blocks)]
            made = [*made, packets.diff_end(self._last, vectors)]
        return made

    patch.setattr(Diff, "take", early)
    patch.setattr("appliance.cores.metadata.diff.DIFF_ROWS", 8)


def no_holding_back(patch: pytest.MonkeyPatch) -> None:
    """Changes are applied while a diff is on its way."""
    patch.setattr(Exchange, "_must_hold", lambda self, session: False)


def said_before_it_is_durable(patch: pytest.MonkeyPatch) -> None:
    """Only every third beat writes, all of them speak: a number is given out again."""
    beats = Counter[int]()

    def settle(self: Exchange) -> None:
        beats[self.replica.source] += 1
        if beats[self.replica.source] % 3 == 0:
            self.replica.write()
        self.settled()

    def take(self: Session, size_max: int) -> list[bytes]:
        out: list[bytes] = []
        while sum(map(len, out)) < size_max and (made := self._next()) is not None:
            out += made
        return out

    patch.setattr(Exchange, "settle", settle)
    patch.setattr(Session, "take", take)
    patch.setattr(StateTable, "scan", lambda self, first, end: self.store.scan(first, end))


def counters_get_the_source_of_the_packet(patch: pytest.MonkeyPatch) -> None:
    """Re-sourcing of N: what others counted is taken for the author's own."""
    sourced = states.sourced

    def every(letter: str, state: bytes, source: int) -> bytes:
        if letter == "N":
            return b"".join(count_record(one.value, source) for one in counts(state))
        return sourced(letter, state, source)

    patch.setattr(packets, "sourced", every)


def sets_in_order_of_letters(patch: pytest.MonkeyPatch) -> None:
    """E sorted by type, then by bytes, and an element of another type is another one."""

    def merge(old: bytes, new: bytes) -> bytes:
        best = {}
        for one in elements(old) + elements(new):
            name = one.letter, one.value
            if name not in best or one.rank > best[name].rank:
                best[name] = one
        return b"".join(best[name].raw for name in sorted(best))

    patch.setitem(states.MERGES, "E", merge)
    patch.setattr(set, "merge", merge)


def diffs_are_seen_while_they_come(patch: pytest.MonkeyPatch) -> None:
    """The peer's vector is joined with its handshake, before the data is there."""
    receive = Exchange._on_handshake

    def eager(self: Exchange, session: Session, packet: bytes, now_ms: int) -> None:
        receive(self, session, packet, now_ms)
        self.replica.table.join_vector(packets.parse_handshake(packet).vector)

    patch.setattr(Exchange, "_on_handshake", eager)


def what_a_diff_brought_is_not_indexed(patch: pytest.MonkeyPatch) -> None:
    """A third replica never gets it."""
    patch.setattr("appliance.cores.metadata.sync_point._touched_by", lambda *args: [])


def diffs_are_not_passed_on(patch: pytest.MonkeyPatch) -> None:
    """Those further away claim nothing and have nothing until they meet again."""

    def apply(self: Exchange, session: Session, point: SyncPoint) -> None:
        point.apply(self.replica.table)
        del session.points[point.handshake.last]

    patch.setattr(Exchange, "_apply_diff", apply)


def objects_move_the_vector_to_their_own_id(patch: pytest.MonkeyPatch) -> None:
    """The vector of O stops before its fields, whose numbers are larger."""
    apply = Replica._apply

    def short(self: Replica, change: Change) -> None:
        apply(self, change._replace(entry=change.id))

    patch.setattr(Replica, "_apply", short)


# With a seed that found it once, which is tried first: changes of the worlds may move it.
PLANTS: dict[str, tuple[Callable[[pytest.MonkeyPatch], None], frozenset[str], int]] = {
    plant.__name__: (plant, frozenset(found_by.split()), seed)
    for plant, found_by, seed in (
        (end_before_the_diff_is_complete, "claims digests model refusals vectors", 0),
        (no_holding_back, "claims digests model vectors", 23),
        (said_before_it_is_durable, "numbers refusals", 7),
        (counters_get_the_source_of_the_packet, "counts", 5),
        (sets_in_order_of_letters, "order", 0),
        (diffs_are_seen_while_they_come, "claims vectors digests model", 0),
        (what_a_diff_brought_is_not_indexed, "claims vectors digests model", 0),
        (diffs_are_not_passed_on, "digests vectors", 0),
        (objects_move_the_vector_to_their_own_id, "vectors claims digests model again", 0),
    )
}


@pytest.mark.parametrize("name", PLANTS)
def test_a_planted_mistake_is_found_by_a_seed_that_holds_without_it(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant, checks, first = PLANTS[name]
    for seed in (first, *range(SEEDS_PER_PLANT_MAX)):
        with monkeypatch.context() as patch:
            plant(patch)
            outcome = run(seed)
        if outcome.check in checks:
            assert not run(seed).failure
            return
    pytest.fail(f"no seed below {SEEDS_PER_PLANT_MAX} finds {name}")
