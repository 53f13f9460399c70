"""Standbys: they hold what the group holds and decide nothing."""

import pytest

from appliance.cores.vsr.status import Status
from appliance.formats import envelope as env
from tests.cores.vsr.group import TINY, Group
from tests.cores.vsr.story import ended
from tests.cores.vsr.test_checkpoints import same_segments

K = TINY.checkpoint_ops
SILENT = (
    env.PREPARE_OK,
    env.START_VIEW_CHANGE,
    env.DO_VIEW_CHANGE,
    env.START_VIEW,
    env.HEADERS,
    env.REPLY,
    env.EVICTION,
)


def begun(replicas: int, standbys: int, seed: int = 1):
    group = Group(replicas, standby_count=standbys, geometry=TINY, seed=seed, segments_max=32)
    return group, group.opened()


@pytest.mark.parametrize("replicas, standbys", [(1, 1), (2, 1), (3, 2), (6, 2)])
def test_standbys_hold_every_record_and_checkpoint_of_the_group(
    replicas: int, standbys: int
) -> None:
    group, session = begun(replicas, standbys)
    group.put(session, 3 * K, 2)
    group.until(group.converged)
    for index in range(replicas, replicas + standbys):
        core = group.core(index)
        assert core.is_standby and core.commit_min == max(group.committed)
        assert core.checkpoint_op >= 3 * K
    same_segments(group)
    ended(group, session)
    said = {header.command for source, _, header in group.trace if source >= replicas}
    assert not said & set(SILENT)


def test_a_standby_follows_into_the_next_view_without_a_vote() -> None:
    group, session = begun(3, 1)
    group.put(session, 3)
    first = group.primary
    group.crash(first)
    group.until(lambda: group.primary is not None)
    group.put(session, 3)
    group.until(group.converged)
    assert group.core(3).view == group.core(group.primary).view > 0
    assert not {h.command for s, _, h in group.trace if s == 3} & set(SILENT)


@pytest.mark.parametrize("replicas", [1, 3])
def test_a_standby_that_was_away_for_long_takes_a_checkpoint_and_fills_its_segments(
    replicas: int,
) -> None:
    group, session = begun(replicas, 1)
    group.put(session, 3)
    group.until(group.converged)
    group.crash(replicas)
    group.put(session, 5 * K, 4)
    core = group.start(replicas)
    group.until(group.converged)
    assert "sync_started" in group.nodes[replicas].marks
    assert core.status == Status.NORMAL and core.backfill is None
    assert same_segments(group) >= 3
    ended(group, session)


def test_a_standby_of_a_lone_replica_asks_it_for_what_is_broken_on_its_own_disk() -> None:
    group, session = begun(1, 1)
    group.put(session, 3 * K)
    group.until(group.converged)
    core = group.core(1)
    zone = group.geometry.checkpoints_offset
    size = group.geometry.checkpoint_zone_size
    at = zone + group.geometry.checkpoint_zone(core.checkpoint_op) * size
    group.crash(1)
    group.nodes[1].disk.poke(at, bytes(4096))
    group.start(1)
    group.until(group.converged)
    assert group.nodes[1].halted is None
    assert "chunk_missing_locally" in group.nodes[1].marks
    ended(group, session)


def test_a_group_commits_without_its_standbys_and_not_with_them_alone() -> None:
    group, session = begun(3, 2)
    group.crash(3)
    group.crash(4)
    group.put(session, 2)
    group.start(3)
    group.start(4)
    group.until(group.converged)
    group.crash(1)
    group.crash(2)
    before = max(group.committed)
    session.ask()
    group.run(200)
    assert max(group.committed) == before
