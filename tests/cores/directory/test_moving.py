"""Every state of a group leads to every placement that is wanted of it, whatever came between."""

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from appliance.base.limits import MEMBERS_MAX
from appliance.base.prng import Prng
from appliance.cores.directory.directory import Directory, canonical, snapshot_fits
from appliance.cores.directory.moves import moves
from appliance.cores.directory.moving import (
    LEVEL,
    Act,
    Add,
    Exchange,
    Refused,
    Remove,
    Step,
    Wait,
    distance,
    in_words,
    is_begun,
    next_step,
    steps,
)
from appliance.cores.directory.status import Group
from tests.cores.directory.words import NOW, farm, post, status

NODES = (1, 2, 3, 4, 5)
ALL_LEVEL = dict.fromkeys(NODES, LEVEL)


def subsets(nodes: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    for count in range(len(nodes) + 1):
        yield from itertools.combinations(nodes, count)


def groups(count: int) -> list[Group]:
    """All with so many who vote."""
    return [
        Group(0, 7, voters, standbys)
        for voters in itertools.combinations(NODES, count)
        for standbys in subsets(tuple(node for node in NODES if node not in voters))
    ]


def placements(count: int) -> list[tuple[int, ...]]:
    return [group.voters + group.standbys for group in groups(count)]


def done(group: Group, step: Act) -> Group:
    """The group once it has taken a step, as its log would."""
    voters, standbys = list(group.voters), list(group.standbys)
    match step:
        case Add(node=node):
            assert node not in voters + standbys
            standbys.append(node)
        case Remove(node=node):
            standbys.remove(node)  # one that votes is never taken out
        case Exchange(up=up, down=down):
            a, b = standbys.index(up), voters.index(down)
            standbys[a], voters[b] = down, up
    assert len(voters) + len(standbys) <= MEMBERS_MAX
    return Group(group.shard, group.op + 1, tuple(voters), tuple(standbys))


@pytest.mark.parametrize("count", [1, 2, 3])
def test_every_group_comes_to_every_placement_and_never_changes_how_many_vote(count: int) -> None:
    """From any state, so also after a cut in the middle, or when something else is wanted then."""
    for start, wanted in itertools.product(groups(count), placements(count)):
        group = start
        while (step := next_step(wanted, group, ALL_LEVEL, NODES, NODES)) is not None:
            assert isinstance(step, Add | Exchange | Remove)
            after = done(group, step)
            assert distance(wanted, after) < distance(wanted, group), (wanted, group, step)
            assert len(after.voters) == count
            group = after
        assert distance(wanted, group) == 0
        assert {*group.voters} == {*wanted[:count]} and {*group.standbys} == {*wanted[count:]}


@pytest.mark.parametrize("count", [1, 2, 3])
def test_who_lacks_state_never_votes_and_a_quorum_of_those_who_vote_serves(count: int) -> None:
    for group, wanted in itertools.product(groups(count), placements(count)):
        for serving in subsets(NODES):
            step = next_step(wanted, group, dict.fromkeys(serving, LEVEL), NODES, NODES)
            if isinstance(step, Exchange):
                assert step.up in serving
                votes = {*group.voters, step.up} - {step.down}
                assert len(votes & {*serving}) > count // 2
            elif isinstance(step, Wait) and step.node:
                assert step.node in group.standbys and step.node not in serving


def test_one_that_serves_is_not_retired_while_another_that_is_to_go_does_not() -> None:
    group = Group(0, 7, (1, 2, 3), (4,))
    level = {1: LEVEL, 3: LEVEL, 4: LEVEL}
    assert next_step((3, 4, 5), group, level, NODES, NODES) == Exchange(0, 4, 2)


def test_how_far_one_has_come_is_told_in_words() -> None:
    group, names = Group(1, 7, (1, 2, 3), (4,)), {4: "node-3", 1: "node-0"}
    for level, said in (
        ({}, "shard 1: node-3 does not serve it yet"),
        ({4: 93}, "shard 1: node-3 is synced to 93 %"),
        ({4: LEVEL}, "shard 1: too few who vote would serve: bring replicas back first"),
        ({4: LEVEL, 2: LEVEL}, "shard 1: node-3 votes in the place of node-0"),
    ):
        step = next_step((2, 3, 4), group, level, NODES, NODES)
        assert step is not None and in_words(step, names) == said


@pytest.mark.parametrize(
    ("wanted", "why"),
    [
        ((1, 2), "2 nodes are named, and 3 vote"),
        ((1, 2, 2), "named twice"),
        ((1, 2, 9), "member 9 is no node that the site file describes"),
        (tuple(range(1, 10)), "9 nodes are named; allowed: 8"),
    ],
)
def test_what_a_group_can_never_be_is_refused(wanted: tuple[int, ...], why: str) -> None:
    step = next_step(wanted, Group(0, 7, (1, 2, 3), ()), ALL_LEVEL, NODES, NODES)
    assert isinstance(step, Refused) and why in step.why


def test_a_group_without_room_lets_somebody_go_before_another_comes() -> None:
    nodes = tuple(range(1, MEMBERS_MAX + 2))
    group = Group(0, 7, nodes[:3], nodes[3:MEMBERS_MAX])
    wanted = (*nodes[1:3], nodes[-1], *nodes[3 : MEMBERS_MAX - 1])
    level = dict.fromkeys(nodes, LEVEL)
    assert next_step(wanted, group, level, nodes, nodes) == Remove(0, MEMBERS_MAX)
    while (step := next_step(wanted, group, level, nodes, nodes)) is not None:
        assert isinstance(step, Add | Exchange | Remove)
        group = done(group, step)
    assert distance(wanted, group) == 0


def test_shards_move_one_after_the_other() -> None:
    """Also when something else is wanted in the middle of it."""
    prng = Prng(7)
    for _ in range(300):
        found = {s: Group(s, 7, (1, 2, 3), ()) for s in range(3)}
        wanted = {s: prng.choice(placements(3)) for s in range(3)}
        described = dict.fromkeys(found, NODES)
        levels = dict.fromkeys(found, ALL_LEVEL)
        for step_number in range(60):
            if step_number < 20 and prng.chance(1, 5):
                shard = prng.below(3)
                if not is_begun(wanted[shard], found[shard]):  # what is begun may be turned back
                    candidate = prng.choice(placements(3))
                    if not is_begun(candidate, found[shard]):
                        wanted[shard] = candidate
            next_steps = steps(wanted, found, levels, described, NODES)
            if not next_steps:
                break
            step = next_steps[0]
            assert isinstance(step, Add | Exchange | Remove)
            found[step.shard] = done(found[step.shard], step)
            assert sum(is_begun(wanted[s], found[s]) for s in found) <= 1
        assert all(distance(wanted[s], found[s]) == 0 for s in found)


def test_a_shard_that_waits_holds_the_others_and_one_that_is_refused_does_not() -> None:
    found = {0: Group(0, 7, (1, 2, 3), ()), 1: Group(1, 7, (1, 2, 3), (4,))}
    wanted = {0: (2, 3, 4), 1: (2, 3, 4)}
    described = dict.fromkeys(found, NODES)
    (first, _) = steps(wanted, found, {0: ALL_LEVEL, 1: {4: 50}}, described, NODES)
    assert first == Wait(1, 4, 50)
    wanted[1] = (2, 3)
    first, last = steps(wanted, found, {0: ALL_LEVEL, 1: ALL_LEVEL}, described, NODES)
    assert first == Add(0, 4) and isinstance(last, Refused)


def test_who_is_not_heard_of_is_not_taken_in_and_holds_no_other_shard() -> None:
    found = {0: Group(0, 7, (1, 2, 3), ()), 1: Group(1, 7, (1, 2, 3), ())}
    wanted = {0: (2, 3, 4), 1: (2, 3, 5)}
    levels, described = dict.fromkeys(found, ALL_LEVEL), dict.fromkeys(found, NODES)
    away = Wait(0, 4, away=True)
    assert steps(wanted, found, levels, described, (1, 2, 3, 5)) == [Add(1, 5), away]
    assert in_words(away, {4: "node-3"}) == "shard 0: node-3 is not heard of"
    assert steps(wanted, found, levels, described, NODES) == [Add(0, 4), Add(1, 5)]
    group = Group(0, 7, (1, 2, 3), ())  # one more that follows
    assert next_step((1, 2, 3, 4), group, ALL_LEVEL, NODES, (1, 2, 3)) == away


# --- what the farm's log makes of it --------------------------------------------------------------

DESCRIBED = {0: NODES, 1: NODES}


def want(directory: Directory, date: int, nodes: dict[str, list[int]], placing: int = 0) -> None:
    config = {"placement": nodes, "placing": placing}
    post(directory, canonical({"cluster": "farm", "date": date, "id": 9, "config": config}))


def says(node: int, date: int, op: int, *, voters: list[int], standbys: list[int]) -> bytes:
    """The status of a node that serves shard 0, with who belongs to it."""
    group = {"shard": 0, "op": op, "voters": voters, "standbys": standbys}
    return status(node, date, groups=[group])


def seen(directory: Directory) -> list[Step]:
    return moves(directory, DESCRIBED)


def test_a_placement_that_was_reached_is_left_to_the_operator_until_it_is_said_anew() -> None:
    directory = farm(says(1, NOW, 5, voters=[1, 2, 3], standbys=[]))
    want(directory, NOW, {"0": [2, 3, 4]})
    assert seen(directory) == [Wait(0, 4, away=True)]
    post(directory, status(4, NOW, shards=()))
    assert seen(directory) == [Add(0, 4)]
    post(directory, says(1, NOW + 1, 9, voters=[4, 2, 3], standbys=[1]))
    assert seen(directory) == [Remove(0, 1)]
    post(directory, says(2, NOW + 2, 5, voters=[1, 2, 3], standbys=[]))  # it lags
    assert seen(directory) == [Remove(0, 1)]
    post(directory, says(2, NOW + 3, 12, voters=[4, 2, 3], standbys=[]))
    assert seen(directory) == []
    post(directory, says(2, NOW + 4, 15, voters=[4, 2, 3], standbys=[5]))  # by hand
    assert seen(directory) == []
    want(directory, NOW + 1, {"0": [2, 3, 4], "1": [1]}, placing=1)  # of another shard
    assert seen(directory) == []
    want(directory, NOW + 2, {"0": [2, 3, 4], "1": [1]})
    assert seen(directory) == [Remove(0, 5)]
    want(directory, NOW + 3, {"1": [1]})
    assert seen(directory) == []


def test_what_a_program_of_before_has_placed_moves_nothing() -> None:
    """A placement only told then where replicas were to be: an upgrade must not move them."""
    directory = farm(says(1, NOW, 5, voters=[1, 2, 3], standbys=[]), status(4, NOW, shards=()))
    config: dict[str, Any] = {"placement": {"0": [2, 3, 4]}}
    former = {"cluster": "farm", "date": NOW, "id": 9, "config": config}
    post(directory, canonical(former))
    assert seen(directory) == []
    want(directory, NOW + 1, {"0": [2, 3, 4]}, placing=1)
    assert seen(directory) == [], "of another shard"
    want(directory, NOW + 2, {"0": [2, 3, 4]})
    assert seen(directory) == [Add(0, 4)]
    post(directory, canonical(former | {"date": NOW + 3}))
    assert seen(directory) == [Add(0, 4)], "it says nothing anew of the shard"
    config["placement"] = {"0": [2, 3, 5]}
    post(directory, canonical(former | {"date": NOW + 4}))
    assert seen(directory) == []
    written = directory.snapshot()
    assert b'"reached":[0]' in written
    other = Directory("farm")
    assert other.restore(directory.index, 1, written.replace(b',"reached":[0]', b""))
    assert seen(other) == [], "as a snapshot of before has it"


def test_what_was_reached_is_in_snapshots() -> None:
    directory = farm(says(1, NOW, 5, voters=[1, 2, 3], standbys=[]))
    want(directory, NOW, {"0": [3, 2, 1]})
    before = directory.snapshot()
    assert b'"placement":[1700000000000,[[0,[3,2,1]]]]' in before and b'"reached":[]' in before
    post(directory, says(1, NOW + 1, 5, voters=[1, 2, 3], standbys=[]))
    for data, reached in ((before, frozenset()), (directory.snapshot(), frozenset({0}))):
        assert snapshot_fits(data)
        other = Directory("farm")
        assert other.restore(directory.index, 1, data) and other.placement.reached == reached
    assert other == directory


def test_who_serves_by_a_recent_status_says_how_far_it_has_come() -> None:
    directory = farm(says(1, NOW, 5, voters=[1, 2, 3], standbys=[4]))
    want(directory, NOW, {"0": [2, 3, 4]})
    assert seen(directory) == [Wait(0, 4)]
    row = {"destination": "x", "address": "", "shard": 0, "synced": 40}
    document = {"cluster": "farm", "date": NOW, "id": 4, "destinations": [row]}
    post(directory, canonical(document))
    assert seen(directory) == [Wait(0, 4, 40)]
    post(
        directory,
        canonical({**document, "date": NOW + 1, "destinations": [{**row, "synced": 100}]}),
    )
    assert seen(directory) == [Wait(0, 0)]  # of those who vote one alone is known to serve
    post(directory, status(2, NOW))
    assert seen(directory) == [Exchange(0, 4, 1)]
