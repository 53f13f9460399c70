"""Stories of crashes: at each step of a view change, at any time, of all at once."""

import pytest

from appliance.base.limits import SECTOR_SIZE
from appliance.cores.vsr.status import Status
from appliance.formats.geometry import SMALL, SUPERBLOCK_COPY_STRIDE
from tests.cores.vsr.disk import Write
from tests.cores.vsr.story import crash_when, ended, lost_acks, running_group

P = SMALL.pipeline_max


# --- at each step of a view change ----------------------------------------------------------------


MOMENTS = {
    "joined": lambda core: core.view == 2,
    "joined durably": lambda core: core.durable_view == 2,
    "list sent": lambda core: core.dvc_sent_view == 2,
    "installed": lambda core: core.log_view == 2,
    "installed durably": lambda core: core.durable_log_view == 2,
    "started": lambda core: core.log_view == 2 and core.status == Status.NORMAL,
}


@pytest.mark.parametrize("who", [0, 2])
@pytest.mark.parametrize("moment", MOMENTS)
def test_vc_crash_after_each_persist_point(who: int, moment: str) -> None:
    """Primary-to-be (2) or backup-to-be (0) dies at each step of the change to view 2."""
    group, session = running_group()
    rule = lost_acks(group)
    session.ask()
    group.settle()
    group.crash(1)
    group.heal(rule)
    core = group.core(who)
    crash_when(group, who, lambda: MOMENTS[moment](core))
    durable = group.nodes[who].disk.superblock()
    group.start(1)
    restarted = group.start(who)
    assert restarted.view >= durable.view and restarted.log_view >= durable.log_view
    ended(group, session)


@pytest.mark.parametrize("copies", range(5))
def test_vc_crash_within_the_superblock_write_of_a_new_view(copies: int) -> None:
    group, session = running_group()
    group.crash(1)
    node = group.nodes[0]
    node.hold = lambda write: (
        write.zone == "superblock" and write.address >= copies * SUPERBLOCK_COPY_STRIDE
    )
    group.run(30)
    group.crash(0, keep=lambda write: [0] if copies % 2 else [])
    group.start(0)
    ended(group, session)


def test_vc_log_view_never_regresses() -> None:
    """Whatever order of crashes: a log_view that was spoken of is on the disk for ever."""
    group, session = running_group()
    seen = [0, 0, 0]
    for step in range(12):
        victim = (step * 2 + 1) % 3
        if group.nodes[victim].replica is not None:
            group.crash(victim)
        group.run(7 + step)
        if group.nodes[victim].replica is None:
            group.start(victim)
        for i, node in enumerate(group.nodes):
            log_view = node.disk.superblock().log_view
            assert log_view >= seen[i]
            seen[i] = log_view
    ended(group, session)


# --- at any time ----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_random_crashes_and_torn_writes_lose_nothing(seed: int) -> None:
    group, session = running_group(seed=seed)
    dice = group.prng.fork()

    def torn(write: Write) -> list[int]:
        return [i for i in range(len(write.data) // SECTOR_SIZE) if dice.chance(1, 2)]

    for _ in range(8):
        if session.core.ready:
            session.ask(1 + dice.below(3))
        for node in group.nodes:
            node.hold = lambda write: dice.chance(1, 3)
        group.run(dice.below(12))
        victim = dice.below(3)
        if group.nodes[victim].replica is not None:
            group.crash(victim, keep=torn)
        group.run(dice.below(30))
        for node in group.nodes:
            if node.replica is None:
                group.start(node.index)
    for node in group.nodes:
        node.hold = lambda write: False
    ended(group, session)


# --- all at once ----------------------------------------------------------------------------------


POWER_CUTS = {
    "nothing landed": lambda replica, nth, sectors: [],
    "all landed": lambda replica, nth, sectors: range(sectors),
    "all torn": lambda replica, nth, sectors: [0],
    "headers are missing": lambda replica, nth, sectors: range(1, sectors),
    "first ones landed, the rest is torn": lambda replica, nth, sectors: (
        range(sectors) if nth < replica else range(sectors - 1)
    ),
    "each lost another one": lambda replica, nth, sectors: [] if nth == replica else range(sectors),
}


@pytest.mark.parametrize("landed", POWER_CUTS)
@pytest.mark.parametrize("ops", [3, 30])
def test_recovery_power_cut_all_first_wrap(ops: int, landed: str) -> None:
    power_cut(ops, POWER_CUTS[landed])


@pytest.mark.parametrize("landed", POWER_CUTS)
def test_recovery_power_cut_all_after_wrap(landed: str) -> None:
    power_cut(SMALL.slot_count + 10, POWER_CUTS[landed])


def power_cut(ops: int, landed) -> None:
    """All three go at once, a full pipeline of large prepares on its way to each disk."""
    group, session = running_group(ops)
    others = [group.client() for _ in range(P - 1)]
    group.until(group.converged)
    for node in group.nodes:
        node.hold = lambda write: write.zone == "prepare"
    for asking in (session, *others):
        asking.ask(SMALL.records_max)
    group.settle()
    for i, node in enumerate(group.nodes):
        in_flight = sorted(node.disk.waiting, key=lambda write: write.token)
        assert len(in_flight) == P
        order = [write.token for write in in_flight]
        group.crash(
            i,
            keep=lambda write, i=i, order=order: list(
                landed(i, order.index(write.token), len(write.data) // SECTOR_SIZE)
            ),
        )
    for i in range(3):
        group.start(i)
    ended(group, session)
