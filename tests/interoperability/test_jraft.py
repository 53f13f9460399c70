"""Together with JRaft, the Raft server in Java whose frames a farm speaks: one farm of both.

After each story all logs are equal, index by index, and hold whatever was acknowledged.
"""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance.cores.raft.effects import OUT
from tests.interoperability.jraft_farm import Ledger, MixedFarm, until
from tests.interoperability.jraft_source import make_classes
from tests.ports import FreePorts

THEIRS_DISTANCE = 30  # entries between snapshots of theirs
OURS = 3
POSTED = 10


@pytest.fixture(scope="module")
def classes(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return make_classes(tmp_path_factory.mktemp("classes"))


@pytest.fixture
def farm(tmp_path: Path, free_ports: FreePorts, classes: list[Path]) -> Iterator[MixedFarm]:
    mixed = MixedFarm(tmp_path / "farm", classes, dict(enumerate(free_ports(4), 1)))
    yield mixed
    mixed.end()


async def end_equal(farm: MixedFarm, members: list[int], ledger: Ledger) -> None:
    """Nobody posts any more: all hold the same at each index that ours has an entry for, and every
    value that was acknowledged."""
    before = max([farm.saved(i).before for i in members if farm.is_ours(i)], default=0)

    def held(member: int) -> dict[int, bytes]:
        return {i: value for i, value in farm.values(member).items() if i > before}

    await until(
        lambda: all(held(member) == held(members[0]) for member in members),
        lambda: f"logs differ: {[sorted(held(m).items())[-9:] for m in members]}",
    )
    theirs = next(member for member in members if not farm.is_ours(member))
    assert not set(ledger.acknowledged) - set(farm.values(theirs).values())


# --- leader and follower in turn ------------------------------------------------------------------


async def kill_in_turn(farm: MixedFarm, ledger: Ledger) -> None:
    """Whoever leads is killed while values are posted, so ours and theirs lead in turn; then who
    follows, one of theirs and ours."""
    for turn in range(6):
        leader = await farm.leader()
        followers = [member for member in (OURS, 1, 2) if member != leader]
        victim = leader if turn < 4 else followers[turn - 4]
        posting = asyncio.create_task(ledger.post(POSTED))
        await asyncio.sleep(0)
        await asyncio.to_thread(farm.kill, victim)
        await posting
        start(farm, victim)
        await farm.wait_for_values((1, 2, OURS), ledger.acknowledged)


def start(farm: MixedFarm, member: int) -> None:
    if member == OURS:
        farm.start_ours(OURS, 1, 2)
    else:
        farm.start_theirs(member, listing=(1, 2, OURS))


@pytest.mark.soak
def test_ours_follows_leads_and_follows_again_among_jraft_servers(farm: MixedFarm) -> None:
    async def story() -> None:
        ledger = Ledger(farm, 1, 2, OURS)
        start(farm, 1)
        start(farm, 2)
        await farm.leader()
        start(farm, OURS)
        await ledger.post(2 * POSTED)
        assert OURS not in ledger.leaders
        await farm.wait_for_values((1, 2, OURS), ledger.acknowledged)
        held = farm.values(OURS)
        assert [held[index] for index in sorted(held)] == ledger.acknowledged
        leader = await farm.leader()
        farm.kill(leader)
        await ledger.post(2 * POSTED)
        assert set(ledger.leaders[2 * POSTED :]) == {OURS}
        follower = 3 - leader
        await farm.wait_for_values((follower, OURS), ledger.acknowledged)
        assert farm.values(follower) == farm.values(OURS)
        start(farm, leader)
        await farm.wait_for_values((leader,), ledger.acknowledged)
        begun = len(ledger.leaders)
        await kill_in_turn(farm, ledger)
        assert OURS in ledger.leaders[begun:]
        assert {1, 2} & set(ledger.leaders[begun:])
        await end_equal(farm, [1, 2, OURS], ledger)
        await ledger.client.close()

    asyncio.run(story())
    farm.stop(OURS)
    rows = [row for row in farm.dump(OURS) if row["type"] == 1]
    assert {row["index"]: row["value"].encode() for row in rows} == farm.values(1)


# --- joins, by snapshots, and leaves --------------------------------------------------------------


@pytest.mark.soak
def test_ours_joins_by_a_jraft_snapshot_hands_it_on_and_both_leave(farm: MixedFarm) -> None:
    async def story() -> None:
        ledger = Ledger(farm, 1, 2, OURS)
        farm.start_theirs(1, 2, listing=(1, 2), distance=THEIRS_DISTANCE)
        await ledger.post(3 * THEIRS_DISTANCE)
        await ours_joins(farm, ledger)
        await theirs_joins_and_leaves(farm, ledger)
        await ours_leaves(farm, ledger)
        await ledger.client.close()

    asyncio.run(story())


async def ours_joins(farm: MixedFarm, ledger: Ledger) -> None:
    """By a snapshot of theirs; then it follows, and leads when their leader is killed."""
    snapshots = [farm.folder_of(member) / "snapshot" for member in (1, 2)]
    await until(lambda: all(path.exists() for path in snapshots), "no snapshots of theirs")
    farm.start_joiner(OURS, distance=POSTED)  # it would make snapshots often, if it could
    await farm.add(OURS, lambda: OURS in farm.listed(OURS))
    snapshot = farm.saved(OURS).snapshot
    assert snapshot is not None and snapshot.data.startswith(b"values\n")
    await ledger.post(POSTED)
    await farm.wait_for_values((OURS,), ledger.acknowledged[-POSTED:])
    leader = await farm.leader()
    assert leader != OURS
    farm.kill(leader)
    await ledger.post(POSTED)
    assert set(ledger.leaders[-POSTED:]) == {OURS}
    farm.start_theirs(leader, listing=())
    await farm.wait_for_values((1, 2), ledger.acknowledged)
    await end_equal(farm, [1, 2, OURS], ledger)


async def theirs_joins_and_leaves(farm: MixedFarm, ledger: Ledger) -> None:
    """Ours leads: a JRaft server that has elected itself gets the snapshot that ours was given."""
    snapshot = farm.saved(OURS).snapshot
    assert snapshot is not None
    farm.start_theirs(4, listing=(4,))
    await farm.add(4, lambda: 4 in farm.listed(OURS))
    await ledger.post(POSTED)
    await farm.wait_for_values((4,), ledger.acknowledged)
    assert farm.applied(4).taken == {snapshot.index: snapshot.data}
    await end_equal(farm, [1, 2, OURS, 4], ledger)
    assert farm.values(4) == farm.values(1)
    await farm.remove(4, lambda: 4 not in farm.listed(OURS))
    assert await farm.ended(4) == 0


async def ours_leaves(farm: MixedFarm, ledger: Ledger) -> None:
    """A JRaft server leads again: it takes ours out, which stops and starts no more."""
    farm.kill(OURS)
    await ledger.post(POSTED)
    assert OURS not in ledger.leaders[-POSTED:]
    farm.start_ours(OURS, distance=POSTED)
    await farm.wait_for_values((OURS,), ledger.acknowledged[-POSTED:])
    await farm.remove(OURS, lambda: farm.saved(OURS).state.standing == OUT)
    assert await farm.ended(OURS) == 1
    farm.start_ours(OURS)
    assert await farm.ended(OURS) == 1
    assert "was taken out of farm" in farm.said(OURS)
    await ledger.post(POSTED)
    await farm.wait_for_values((1, 2), ledger.acknowledged)
    await end_equal(farm, [1, 2], ledger)
