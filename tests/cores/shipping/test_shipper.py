"""Whatever fails, whoever dies, however many ship: each record in one file of one manifest."""

import contextlib
import itertools

import pytest

from appliance.base.prng import Prng
from appliance.cores.shipping.chosen import NOBODY
from appliance.cores.shipping.plan import SECOND_US, period_end
from appliance.cores.shipping.seams import SEGMENTS_PER_SCAN, SeekSeams
from appliance.cores.shipping.shipper import (
    Append,
    CheckTarget,
    Compare,
    Put,
    PutHead,
    PutManifest,
    Sweep,
)
from appliance.cores.shipping.source import NotHere, Source
from appliance.formats import manifest as mf
from appliance.formats.event import SHIP_ANNOUNCE, SHIP_CLAIM, SHIP_MANIFEST
from appliance.formats.geometry import SMALL
from tests.cores.rooms.shard import CLUSTER, SHARD
from tests.cores.shipping.world import GEOMETRY, PATIENCE_US, PERIOD_US, TRUSTED, Extents, World

SEEDS = 6
DAY_US = 86_400 * SECOND_US


def told(world: World, node: int, turns: int) -> list[object]:
    """What this node's shipper does in as many turns, the others standing still."""
    actor, steps = world.actors[node], []
    for _ in range(turns):
        rooms = world.shard.rooms
        actor.core.on_state(
            rooms.shipping, rooms.shipper_cursor, rooms.log_seq, world.now_us, world.log_time
        )
        step = actor.core.step(world.source, world.now_us, world.clock_us)
        if step is not None:
            steps.append(step.shipped.action if isinstance(step, Append) else type(step))
            world.do(actor, step)
    return steps


class Sure:
    """Chance that never strikes, for tests that tell a story."""

    def __init__(self, prng: Prng) -> None:
        self.fork, self.between, self.choice = prng.fork, prng.between, prng.choice

    def chance(self, numerator: int, denominator: int) -> bool:
        return False


@pytest.fixture
def world() -> World:
    world = World(1)
    world.prng = Sure(world.prng)
    return world


@pytest.mark.parametrize("number", range(SEEDS))
def test_random_faults_ship_each_record_exactly_once(seed: int, number: int) -> None:
    world = World(seed + number)
    for _ in range(6):
        world.run(250)
        world.check()
    world.run(600, calm=True)
    world.wall_us += 3 * PERIOD_US
    world.run(900, calm=True)
    world.check()
    assert world.shard.rooms.shipping.manifest_count > 5
    behind = world.wall_us - world.shard.rooms.shipping.period_start_us
    assert behind < 30 * PERIOD_US
    head = mf.parse_head(world.files[f"{world.folder}/head.json"], TRUSTED)
    assert head.value.number <= world.shard.rooms.shipping.manifest_count - 1


def test_equal_seeds_ship_equal_files(seed: int) -> None:
    worlds = [World(seed), World(seed)]
    for world in worlds:
        world.run(800)
    assert worlds[0].files == worlds[1].files


def test_the_first_in_turn_claims_and_a_period_goes_its_way(world: World) -> None:
    assert told(world, 0, 3) == []
    assert told(world, 2, 3) == []
    assert told(world, 1, 3) == [SHIP_CLAIM, Sweep]
    world.wall_us += PERIOD_US
    assert told(world, 1, 7) == [SHIP_ANNOUNCE, Put, PutManifest, SHIP_MANIFEST, Sweep, PutHead]
    world.check()
    assert world.leftovers() == []
    assert len(world.files) == 3


def test_turns_are_those_of_who_holds_the_shard_now(world: World) -> None:
    for actor in world.actors:
        actor.core.on_members((0, 2))
    assert told(world, 1, 3) == told(world, 2, 3) == []
    world.wall_us += PATIENCE_US
    assert told(world, 1, 3) == [], "it was the first, and holds the shard no more"
    assert told(world, 2, 1) == [SHIP_CLAIM], "the second one, a patience later"


def test_a_period_is_under_way_until_the_head_names_it(world: World) -> None:
    shipper = world.actors[1].core
    assert not shipper.settled
    told(world, 1, 5)
    assert shipper.settled
    world.wall_us += PERIOD_US
    steps = []
    while PutHead not in steps:
        steps += told(world, 1, 1)
        assert shipper.settled == (PutHead in steps), steps


def test_the_operator_ends_a_period_at_a_second_of_his(world: World) -> None:
    told(world, 1, 3)
    shipper = world.actors[1].core
    world.message(3)
    end = (world.wall_us // SECOND_US + 1) * SECOND_US
    assert end % PERIOD_US  # it would have gone on
    shipper.hurry(claim=False, close_at_us=end)
    assert told(world, 1, 3) == []  # that second is not over
    world.wall_us = end
    assert shipper.closing
    assert told(world, 1, 7) == [SHIP_ANNOUNCE, Put, PutManifest, SHIP_MANIFEST, Sweep, PutHead]
    told(world, 1, 1)
    assert not shipper.closing
    assert world.manifests()[0].value.period_end_us == end
    world.wall_us += PERIOD_US
    told(world, 1, 7)
    assert world.manifests()[1].value.period_end_us % PERIOD_US == 0  # in step again
    world.check()


def test_a_period_of_a_log_that_is_ahead_ends_by_the_time_of_the_log(world: World) -> None:
    """The wall's clock stands far before the period, and nobody writes."""
    told(world, 1, 3)
    world.message(3)
    world.behind_us = 400 * DAY_US
    world.log_us = world.wall_us
    source, shipper = world.source, world.actors[1].core
    assert told(world, 1, 10) == []
    end = period_end(source.timestamp(1), PERIOD_US)
    world.log_us = end - 1
    assert told(world, 1, 3) == []
    assert shipper.late_us(source, world.clock_us) == 0
    world.log_us = world.shard.timestamp = end + 7
    assert told(world, 1, 7) == [SHIP_ANNOUNCE, Put, PutManifest, SHIP_MANIFEST, Sweep, PutHead]
    world.check()


def test_periods_go_on_where_the_clock_was_corrected(world: World) -> None:
    """Each record in one file, whose times rise; all within what its manifest says."""
    told(world, 1, 3)
    shard = world.shard
    world.message(3)
    world.behind_us = 400 * DAY_US
    world.log_us = shard.timestamp
    seam = world.correct(world.clock_us)
    world.message(2)
    assert abs(shard.rooms.ahead_us - world.behind_us) < SECOND_US
    for _ in range(3):
        world.wall_us += PERIOD_US
        told(world, 1, 8)
    world.check()
    first, *others = (signed.value for signed in world.manifests())
    assert others
    assert [file.first_log_seq for file in first.files] == [1, seam]
    assert first.ahead_us == shard.rooms.ahead_us
    times = [world.source.timestamp(n) for n in range(1, world.source.log_seq + 1)]
    assert times[seam - 1] < times[0] < times[seam - 2]


@pytest.mark.parametrize("behind", [1, 2, 3, 50, 100])
def test_a_correction_that_is_not_replayed_here_yet_is_found_when_it_is(
    world: World, behind: int
) -> None:
    """The state tells of it first: a replica tells where it stands before its readers see it."""
    told(world, 1, 3)
    world.message(120)
    world.behind_us = 400 * DAY_US
    world.log_us = world.shard.timestamp
    seam = world.correct(world.clock_us)
    world.wall_us += PERIOD_US
    world.source = Source(GEOMETRY, world.shard.ring, Extents(world.shard))
    ahead_us = world.shard.rooms.ahead_us
    for log_seq in (seam - behind, seam - 1):
        world.source.log_seq = log_seq
        assert told(world, 1, 20) == []
        with pytest.raises(NotHere):
            world.source.seek_seams(ahead_us, seam)
        with pytest.raises(NotHere):
            world.source.seams(ahead_us)
    world.shown()
    for _ in range(3):
        world.wall_us += PERIOD_US
        told(world, 1, 20)
    assert world.source.seams(ahead_us) == {seam: 0}
    world.check()
    files = [file.first_log_seq for signed in world.manifests() for file in signed.value.files]
    assert seam in files


def test_a_long_log_is_looked_through_by_steps_of_few_segments_and_only_by_them(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    told(world, 1, 3)
    world.behind_us = 400 * DAY_US
    world.log_us = world.shard.timestamp
    seam = world.correct(world.clock_us)
    world.message(20 * GEOMETRY.segment_records)
    world.source = Source(GEOMETRY, world.shard.ring, Extents(world.shard))
    world.shown()
    checked: list[int] = []
    told_in = Source._told_in

    def counted(source: Source, number: int, kind: int) -> list[tuple[int, bytes]]:
        checked.append(number)
        return told_in(source, number, kind)

    monkeypatch.setattr(Source, "_told_in", counted)
    actor, rooms, seeks = world.actors[1], world.shard.rooms, 0
    while True:
        actor.core.on_state(
            rooms.shipping, rooms.shipper_cursor, rooms.log_seq, world.now_us, world.log_time
        )
        before = len(checked)
        step = actor.core.step(world.source, world.now_us, world.clock_us)
        with contextlib.suppress(NotHere):
            actor.core.late_us(world.source, world.clock_us)
        assert len(checked) == before, "a decision reads no segments"
        if not isinstance(step, SeekSeams):
            break
        seeks += 1
        world.source.seek_seams(step.ahead_us, step.log_seq)
        actor.core.on_done(step)
        assert 0 < len(checked) - before <= SEGMENTS_PER_SCAN
    assert seeks > 20 // SEGMENTS_PER_SCAN
    assert len(checked) == len(set(checked)), "none is read twice"
    assert world.source.seams(rooms.ahead_us) == {seam: 0}


def test_an_announcement_that_the_log_refuses_is_repeated_after_pauses_that_grow(
    world: World,
) -> None:
    """Who leads has begun later and knows of less that has passed."""
    told(world, 1, 3)
    world.behind_us = 400 * DAY_US
    world.log_us = 2 * world.wall_us
    begun, asked = world.wall_us, []
    for _ in range(1000):
        world.wall_us += 100_000
        if told(world, 1, 1):
            asked.append((world.wall_us - begun) // 100_000)
    pauses = [b - a for a, b in itertools.pairwise(asked)]
    assert pauses[:4] == [2, 4, 8, 16]
    assert max(pauses) == 300


def test_a_wish_to_end_a_period_leaves_those_that_are_over_as_they_are(world: World) -> None:
    told(world, 1, 3)
    world.wall_us += 3 * PERIOD_US
    close_at = world.wall_us // SECOND_US * SECOND_US
    world.actors[1].core.hurry(claim=False, close_at_us=close_at)
    told(world, 1, 40)
    ends = [signed.value.period_end_us for signed in world.manifests()]
    assert close_at in ends
    assert all(end % PERIOD_US == 0 for end in ends if end != close_at)
    world.check()


def test_who_begins_compares_the_target_with_the_log_before_he_puts_a_head(world: World) -> None:
    told(world, 1, 3)
    world.wall_us += PERIOD_US
    told(world, 1, 7)
    world.actors[1] = world.actor(1)
    assert told(world, 1, 5) == [SHIP_CLAIM, Sweep, Compare, PutHead]
    world.actors[1].core.on_compared("the first 3 periods are not there")
    assert world.actors[1].core.hole == "the first 3 periods are not there"


def test_an_idle_period_gets_a_manifest_without_files(world: World) -> None:
    told(world, 1, 3)
    world.wall_us += PERIOD_US
    told(world, 1, 7)
    world.wall_us += 3 * PERIOD_US
    steps = told(world, 1, 20)
    assert steps.count(SHIP_MANIFEST) == 3
    assert steps.count(Put) == 1  # the records that closed the first period
    idle = [s.value for s in world.manifests() if not s.value.files]
    assert [manifest.record_count for manifest in idle] == [0, 0]
    world.check()


def test_sealed_segments_are_put_before_their_period_ends(world: World) -> None:
    told(world, 1, 3)
    world.message(2 * SMALL.segment_records)
    assert told(world, 1, 5) == [Put, Put]
    assert mf.parse_snapshot_name(sorted(world.files)[0].rpartition("/")[2]) == (1, 100)
    world.wall_us += PERIOD_US
    assert told(world, 1, 3) == [SHIP_ANNOUNCE, Put, PutManifest]
    told(world, 1, 3)
    world.check()


def test_a_restarted_process_claims_again_and_finds_its_files(world: World) -> None:
    told(world, 1, 3)
    world.message(SMALL.segment_records)
    assert told(world, 1, 2) == [Put]
    before = dict(world.files)
    world.actors[1] = world.actor(1)
    assert told(world, 1, 5) == [SHIP_CLAIM, Sweep, Put]
    assert world.files == before  # read back, not put again
    assert world.shard.rooms.shipping.generation == 2


def test_another_node_takes_over_what_is_late_and_where_nothing_moves(world: World) -> None:
    told(world, 1, 3)
    world.message(5)
    world.wall_us += PERIOD_US
    assert told(world, 1, 1) == [SHIP_ANNOUNCE]  # then it dies
    assert told(world, 2, 3) == []
    world.wall_us += PATIENCE_US + PERIOD_US
    steps = []
    for _ in range(5):
        world.wall_us += PATIENCE_US // 4
        steps += told(world, 2, 1)
        assert told(world, 0, 1) in ([], [CheckTarget])  # its turn comes later
    assert steps == [CheckTarget] * 5
    assert told(world, 2, 5) == [SHIP_CLAIM, Sweep, Put, PutManifest, SHIP_MANIFEST]
    world.check()


def choose(world: World, node: int) -> None:
    """The farm's word comes to every node."""
    for actor in world.actors:
        actor.core.chosen.learn(node, actor.core.role.node)


def test_who_the_farm_chooses_claims_and_the_others_wait_for_their_turn(world: World) -> None:
    choose(world, 0)
    for node in (1, 2):  # the first in turn without a farm, and another
        assert told(world, node, 3) == []
    assert told(world, 0, 3) == [SHIP_CLAIM, Sweep]
    choose(world, 2)
    assert told(world, 1, 3) == []
    assert told(world, 2, 3) == [SHIP_CLAIM, Sweep]  # at once, though nothing is late
    assert SHIP_CLAIM not in told(world, 0, 5)
    choose(world, 2)  # told again and again, it claims once
    assert SHIP_CLAIM not in told(world, 2, 5)
    assert (world.shard.rooms.shipping.generation, world.shard.rooms.shipping.node) == (2, 2)


def test_a_choice_that_the_chosen_node_does_not_heed_keeps_nobody_from_a_late_period(
    world: World,
) -> None:
    choose(world, 0)
    told(world, 0, 3)
    world.message(5)
    choose(world, 2)  # where no shipper runs
    world.wall_us += 2 * PERIOD_US + PATIENCE_US
    for _ in range(12):
        world.wall_us += PATIENCE_US // 4
        told(world, 1, 2)
    assert world.shard.rooms.shipping.node == 1


def test_nobody_begins_to_ship_while_the_farm_says_nothing_that_is_valid(world: World) -> None:
    choose(world, NOBODY)
    for _ in range(20):
        world.wall_us += PATIENCE_US
        assert all(told(world, node, 2) == [] for node in range(3))
    choose(world, 1)
    assert told(world, 1, 2) == [SHIP_CLAIM, Sweep]
    world.message(5)
    choose(world, NOBODY)
    world.wall_us += PERIOD_US
    world.actors[1] = world.actor(1)  # its process starts again: that moves nothing
    choose(world, NOBODY)
    assert told(world, 1, 2) == [SHIP_CLAIM, Sweep]
    world.wall_us += PERIOD_US
    for _ in range(20):
        world.wall_us += PATIENCE_US
        assert not any(told(world, node, 2) for node in (0, 2))


def test_an_own_folder_is_not_taken_over_by_choice() -> None:
    world = World(1, shared=False)
    world.prng = Sure(world.prng)
    choose(world, 1)
    told(world, 1, 3)
    choose(world, 2)
    assert told(world, 2, 5) == []


def test_nobody_takes_over_while_something_moves_at_the_target(world: World) -> None:
    told(world, 1, 3)
    world.message(5)
    world.wall_us += PERIOD_US + PATIENCE_US
    for i in range(20):
        world.files[f"{world.folder}/_incoming/1-x"] = bytes(i)
        world.wall_us += PATIENCE_US // 3
        assert SHIP_CLAIM not in told(world, 2, 2)


def test_nobody_claims_while_the_target_is_away_for_all(world: World) -> None:
    told(world, 1, 3)
    world.message(5)
    world.down = True
    for _ in range(20):
        world.wall_us += PATIENCE_US
        for node in range(3):
            assert SHIP_CLAIM not in told(world, node, 2)
    assert world.shard.rooms.shipping.generation == 1
    world.down = False
    world.wall_us += 31_000_000  # its longest pause
    told(world, 1, 60)
    world.check()
    assert world.shard.rooms.shipper_cursor >= 7


def test_folders_of_their_own_are_never_taken_over_but_by_wish() -> None:
    world = World(1, shared=False)
    world.prng = Sure(world.prng)
    told(world, 1, 3)
    world.wall_us += 100 * PERIOD_US
    assert told(world, 2, 5) == told(world, 0, 5) == []
    world.actors[2].core.hurry(claim=True)
    assert told(world, 2, 3) == [SHIP_CLAIM, Sweep, SHIP_ANNOUNCE]


def test_a_fenced_shipper_stops_at_once(world: World) -> None:
    told(world, 1, 3)
    world.wall_us += PERIOD_US
    assert told(world, 1, 2) == [SHIP_ANNOUNCE, Put]
    world.actors[0].core.hurry(claim=True)
    assert told(world, 0, 1) == [SHIP_CLAIM]
    assert told(world, 1, 3) == []
    zombie = world.actors[1]
    zombie.lag = 100  # its replica does not show it the claim
    zombie.core.on_state(zombie.core.state, zombie.core.cursor, 10**6, world.now_us)
    told(world, 0, 10)
    world.check()
    assert len(world.manifests()) == 1


def test_a_failure_is_repeated_after_pauses_that_grow_to_a_bound(world: World) -> None:
    told(world, 1, 2)
    world.wall_us += PERIOD_US
    assert told(world, 1, 1) == [SHIP_ANNOUNCE]
    world.down = True
    pauses = []
    for _ in range(12):
        started = world.wall_us
        while told(world, 1, 1) != [Put]:
            world.wall_us += 10_000
        pauses.append(world.wall_us - started)
    assert pauses[1] < pauses[5] <= max(pauses) <= 31_000_000
    core = world.actors[1].core
    assert core.error == "the target is away"
    assert core.late_us(world.source, world.wall_us) > 0
    core.hurry(claim=False)
    world.down = False
    assert told(world, 1, 1) == [Put]
    assert core.error == ""


def test_the_head_is_of_this_shard_and_names_the_newest_manifest(world: World) -> None:
    told(world, 1, 3)
    world.wall_us += PERIOD_US
    told(world, 1, 8)
    head = mf.parse_head(world.files[f"{world.folder}/head.json"], TRUSTED).value
    newest = world.manifests()[-1]
    assert (head.cluster, head.shard, head.number) == (CLUSTER, SHARD, 0)
    assert head.manifest == newest.hash
    assert head.last_log_seq == newest.value.last_log_seq
    assert head.period_start_us == newest.value.period_start_us
    assert PutHead not in told(world, 1, 5)


def test_what_was_dropped_before_anything_was_shipped_does_not_keep_the_rest(world: World) -> None:
    """As of a site that ships from now on, or one that was restored."""
    records = GEOMETRY.segment_records
    world.message(3 * records)
    world.wall_us += 3 * PERIOD_US  # the dropped ones are of other periods
    world.message(records)
    world.shard.rooms._retention.set(oldest=3, before=3, shipper_cursor=3 * records)
    extents = Extents(world.shard)
    extents.oldest = 3
    world.source = Source(GEOMETRY, world.shard.ring, extents)
    world.source.oldest_segment = 3
    world.shown()
    with pytest.raises(NotHere):
        world.source.timestamp(1)
    told(world, 1, 4)
    world.wall_us += PERIOD_US
    told(world, 1, 12)
    first = world.manifests()[0].value
    assert (first.number, first.first_log_seq) == (0, 3 * records + 1)
    assert first.period_start_us > 0
