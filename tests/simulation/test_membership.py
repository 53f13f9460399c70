"""Worlds in which members come, go and change places, and the checker that watches them."""

from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import pytest

from appliance.cores.vsr import membership
from appliance.formats.group import Configuration
from appliance.simulation.checkers.membership import Membership
from appliance.simulation.failure import Violation
from appliance.simulation.options import SWARM, Options, draw, parse
from appliance.simulation.world import World

KINDS = ("members_reordered", "standby_promoted", "member_removed", "member_added")
SEEDS = (7, 16, 20, 22)  # of calm worlds, with every kind of change among them
# Seed 153 found a vote that listed what was newer than its log.
SWARM_WORLDS = [(6, 2), (22, 2), (41, 2), (58, 1), (60, 2), (108, 3), (128, 3), (153, 1)]
A, B, C = (letter * 16 for letter in (b"a", b"b", b"c"))


def changing(seed: int, *, records: int = 100, **more: int) -> Options:
    """A calm world with two standbys and three changes."""
    return Options(
        seed=seed,
        mode=SWARM,
        standby_count=2,
        member_changes=3,
        edge_count=2,
        records_per_device=records,
        **more,
    )


def seen(*agreed: Configuration) -> Membership:
    """A checker that was shown these, by one replica after the other."""
    checker = Membership()
    for index, configuration in enumerate(agreed):
        checker.on_step(index, SimpleNamespace(agreed=configuration))  # type: ignore[arg-type]
    return checker


def test_every_kind_of_change_happens_and_clients_get_their_answers() -> None:
    done: Counter[str] = Counter()
    for seed in SEEDS:
        outcome = World(changing(seed)).run()
        assert not outcome.failure, f"seed {seed}: {outcome.failure}"
        assert not outcome.excuse
        done.update({name: outcome.faults.get(name, 0) for name in KINDS})
        assert outcome.marks["membership_changed"] > 0
    assert all(done[name] for name in KINDS), done


def test_a_change_is_completed_when_replicas_crash_all_the_time() -> None:
    options = changing(
        1, records=400, crash_ticks_mean=300, restart_ticks_mean=50, safety_ticks=6_000
    )
    outcome = World(options).run()
    assert not outcome.failure, outcome.failure
    assert sum(outcome.faults.get(name, 0) for name in KINDS) == 3
    assert outcome.faults["crash"] > 10


@pytest.mark.parametrize(("seed", "changes"), SWARM_WORLDS)
def test_a_world_of_the_swarm_keeps_every_promise_when_its_members_change(
    seed: int, changes: int
) -> None:
    outcome = World(replace(draw(seed, SWARM), member_changes=changes)).run()
    assert not outcome.failure, outcome.failure
    assert sum(outcome.faults.get(name, 0) for name in KINDS) > 0


def test_a_world_has_an_operator_for_changes_or_one_who_errs_and_not_both() -> None:
    with pytest.raises(ValueError, match="old_copy=0"):
        parse(Options(seed=1, mode=SWARM, old_copy=300_000), ["member_changes=1"])
    disks_are_lost = Options(seed=1, mode=SWARM, reformat=300_000)
    assert parse(disks_are_lost, ["member_changes=1"]).member_changes == 1


def test_two_configurations_of_one_op_are_a_violation() -> None:
    first, second = Configuration(0, 0, 2, (A, B)), Configuration(1, 9, 2, (B, A))
    assert seen(first, second, second).newest == second
    with pytest.raises(Violation, match="has other members since op 9"):
        seen(first, second, Configuration(1, 9, 2, (A, C)))


def test_an_epoch_that_is_left_out_is_a_violation() -> None:
    first = Configuration(0, 0, 2, (A, B))
    with pytest.raises(Violation, match="from epoch 0 to 2"):
        seen(first, Configuration(2, 9, 2, (B, A)))


def test_a_world_notices_that_a_log_goes_on_behind_the_end_of_its_epoch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(membership, "pending", lambda member: False)
    outcome = World(changing(15, records=400)).run()
    assert "without op" in outcome.failure and outcome.checker == "acknowledgements"
