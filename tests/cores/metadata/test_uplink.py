"""To which node a node keeps its stream: those of the directory first, and on when one is gone."""

from appliance.cores.metadata.uplink import PASS_MS, REHANG_MS, ROUND_MS, Uplink


def targets(uplink: Uplink, count: int, now_ms: int = 0) -> list[tuple[int, int]]:
    """The next targets while nobody answers, and how long each of those before was waited for."""
    found, since = [], now_ms
    while len(found) < count:
        now_ms += 10
        if uplink.poll(now_ms, is_open=False):
            assert uplink.target is not None
            found.append((uplink.target, now_ms - since))
            since = now_ms
    return found


def test_it_goes_through_all_smaller_nodes_and_begins_again() -> None:
    uplink = Uplink(3, [0, 1, 2, 3, 4], 0)
    assert uplink.target == 0
    found = targets(uplink, 5)
    assert found == [
        *((1, REHANG_MS), (2, PASS_MS), (0, PASS_MS)),  # a whole round
        *((1, ROUND_MS), (2, ROUND_MS)),
    ]


def test_an_open_stream_stays_and_its_loss_is_answered_anew() -> None:
    uplink = Uplink(2, [0, 1], 0)
    targets(uplink, 4)
    assert not uplink.poll(60_000, is_open=True)
    assert targets(uplink, 1, 60_000)[0][1] == REHANG_MS


def test_three_nodes_that_are_gone_are_passed_within_five_seconds() -> None:
    uplink = Uplink(6, list(range(6)), 0)
    assert sum(waited for _, waited in targets(uplink, 5)) < 5_000


def test_nodes_of_the_directory_come_first_and_the_others_behind_them() -> None:
    uplink = Uplink(4, [0, 1, 2, 3], 0)
    assert uplink.learn(frozenset((1, 3, 9)), 0)
    assert [uplink.target, *(target for target, _ in targets(uplink, 4))] == [1, 3, 0, 2, 1]


def test_a_target_that_the_directory_lists_stays_and_another_one_is_left() -> None:
    uplink = Uplink(3, [0, 1, 2], 0)
    targets(uplink, 1)
    assert uplink.target == 1
    assert not uplink.learn(frozenset((0, 1, 2)), 0) and uplink.target == 1
    assert uplink.learn(frozenset((0, 2)), 0) and uplink.target == 0
    assert not uplink.learn(frozenset((3,)), 0) and uplink.target == 0  # as good as none


def test_the_smallest_node_dials_nobody() -> None:
    uplink = Uplink(0, [0, 1, 2], 0)
    assert uplink.target is None and not uplink.learn(frozenset((1,)), 0)
    assert not uplink.poll(60_000, is_open=False)
