"""The rule that chooses the log of a new view: each verdict, each part of the rule, on its own."""

from itertools import combinations

import pytest

from appliance.cores.vsr.evaluate import DoViewChange, Evaluation, Verdict, evaluate
from appliance.cores.vsr.quorums import quorums
from appliance.formats.envelope import Header
from appliance.formats.geometry import SMALL
from tests.cores.vsr.chain import ROOT, blank, chain, prepare

P = SMALL.pipeline_max
CHAIN = {0: ROOT, **{op: m.header for op, m in chain(12, view=1).items()}}
FORK = {op: m.header for op, m in chain(12, view=2, first=8, parent=CHAIN[7]).items()}

# What a list says of one op: durable here, known and never durable, was durable and is lost,
# never seen, and a slot that may have held it.
PRESENT, MISSING, CORRUPT, BLANK, FAULT = "present", "missing", "corrupt", "blank", "fault"


def dvc(
    replica: int,
    top: int,
    what: dict[int, str] | None = None,
    *,
    log_view: int = 1,
    commit: int = 5,
    low: int = 5,
    headers: dict[int, Header] | None = None,
) -> DoViewChange:
    """A list from `top` down to `low`; every op is present unless `what` says otherwise."""
    listed, presents, nacks = [], 0, 0
    for i, op in enumerate(range(top, low - 1, -1)):
        state = (what or {}).get(op, PRESENT)
        listed.append(blank(op) if state in (BLANK, FAULT) else (headers or CHAIN)[op])
        presents |= (state == PRESENT) << i
        nacks |= (state in (MISSING, BLANK)) << i
    return DoViewChange(replica, log_view, top, commit, 0, listed, presents, nacks)


def verdict(*dvcs: DoViewChange, replica_count: int = 3, begun: int = 0) -> Evaluation:
    row = quorums(replica_count)
    return evaluate(
        list(dvcs),
        replica_count=replica_count,
        quorum_view_change=row.view_change,
        quorum_nack=row.nack,
        pipeline_max=P,
        begun=begun,
    )


def start(head: int, floor: int = 5) -> Evaluation:
    return Evaluation(Verdict.START, head, floor)


AWAIT_MORE, STUCK = Evaluation(Verdict.AWAIT_MORE), Evaluation(Verdict.STUCK)


def test_one_list_of_three_is_no_quorum() -> None:
    assert verdict(dvc(0, 7)) == Evaluation(Verdict.AWAIT_QUORUM)
    assert verdict() == Evaluation(Verdict.AWAIT_QUORUM)


@pytest.mark.parametrize("count", range(1, 7))
def test_exactly_a_view_change_quorum_is_enough(count: int) -> None:
    needed = quorums(count).view_change
    lists = [dvc(i, 7) for i in range(count)]
    if needed > 1:
        assert verdict(*lists[: needed - 1], replica_count=count).verdict == Verdict.AWAIT_QUORUM
    assert verdict(*lists[:needed], replica_count=count) == start(7)


def test_what_all_hold_is_kept() -> None:
    assert verdict(dvc(0, 7), dvc(1, 7)) == start(7)
    assert verdict(dvc(0, 5), dvc(1, 5)) == start(5)


def test_what_one_holds_and_only_one_denies_is_kept() -> None:
    """It may be committed: by the one who holds it and the one who is silent."""
    assert verdict(dvc(0, 8), dvc(1, 7)) == start(8)
    assert verdict(dvc(0, 8), dvc(1, 8, {8: MISSING})) == start(8)
    assert verdict(dvc(0, 8), dvc(1, 8, {8: CORRUPT})) == start(8)
    assert verdict(dvc(0, 8), dvc(1, 9, {8: FAULT, 9: PRESENT})) == start(9)


@pytest.mark.parametrize(
    "mine", [dvc(0, 8, {8: MISSING}), dvc(0, 9, {8: BLANK, 9: MISSING}), dvc(0, 7)]
)
@pytest.mark.parametrize(
    "theirs", [dvc(1, 8, {8: MISSING}), dvc(1, 9, {8: BLANK, 9: MISSING}), dvc(1, 7)]
)
def test_what_a_nack_quorum_denies_is_cut(mine: DoViewChange, theirs: DoViewChange) -> None:
    assert verdict(mine, theirs) == start(7)


def test_everything_above_a_cut_is_cut() -> None:
    gap = {8: MISSING}
    assert verdict(dvc(0, 9, gap), dvc(1, 9, gap)) == start(7)
    assert verdict(dvc(0, 9, gap), dvc(1, 9, gap), dvc(2, 7)) == start(7)


def test_vc_corrupt_committed_tail_never_nacked() -> None:
    """Lost on one, never seen by another: the third may hold it, so it is waited for."""
    assert verdict(dvc(0, 8, {8: CORRUPT}), dvc(1, 7)) == AWAIT_MORE
    assert verdict(dvc(0, 9, {8: FAULT, 9: CORRUPT}), dvc(1, 7)) == AWAIT_MORE


def test_vc_dvc_awaits_third_when_one_corrupt_one_missing() -> None:
    two = dvc(0, 8, {8: CORRUPT}), dvc(1, 8, {8: MISSING})
    assert verdict(*two) == AWAIT_MORE
    assert verdict(*two, dvc(2, 8)) == start(8), "the third has it"
    assert verdict(*two, dvc(2, 7)) == start(7), "the third denies it: no quorum ever held it"
    assert verdict(*two, dvc(2, 8, {8: CORRUPT})) == STUCK


def test_vc_two_corrupt_of_three_stuck_not_lost() -> None:
    lost = {8: CORRUPT}
    assert verdict(dvc(0, 8, lost), dvc(1, 8, lost)) == AWAIT_MORE
    assert verdict(dvc(0, 8, lost), dvc(1, 8, lost), dvc(2, 7)) == STUCK
    assert verdict(dvc(0, 8, lost), dvc(1, 8, lost), dvc(2, 8, {8: MISSING})) == STUCK


def test_a_copy_in_memory_counts_and_yet_is_denied() -> None:
    """`missing` with its bytes still in memory: one nack, one copy."""
    held = dvc(0, 8, {8: MISSING})._replace(presents=0b1111)
    assert verdict(held, dvc(1, 8, {8: CORRUPT})) == start(8)
    assert verdict(held, dvc(1, 7)) == start(7)


def test_vc_highest_op_does_not_win() -> None:
    """An isolated old primary has a long tail; a later view has replaced it."""
    old = dvc(0, 9, log_view=1)
    new = dvc(1, 8, log_view=2, headers=CHAIN | FORK, commit=7)
    assert verdict(old, new) == start(8, floor=7)
    assert verdict(dvc(0, 11, log_view=1, low=7, commit=7), new) == start(8, floor=7)


def test_vc_nack_older_view() -> None:
    """Who holds another prepare at that op never prepared the canonical one: that is a nack."""
    new = dvc(1, 8, {8: MISSING}, log_view=2, headers=CHAIN | FORK, commit=7, low=7)
    assert verdict(dvc(0, 8, log_view=1, commit=7, low=7), new) == start(7, floor=7)
    held = dvc(1, 8, log_view=2, headers=CHAIN | FORK, commit=7, low=7)
    assert verdict(dvc(0, 8, log_view=1, commit=7, low=7), held) == start(8, floor=7)
    lost = dvc(1, 8, {8: CORRUPT}, log_view=2, headers=CHAIN | FORK, commit=7, low=7)
    assert verdict(dvc(0, 8, log_view=1, commit=7, low=7), lost) == AWAIT_MORE


def test_a_copy_of_another_version_is_no_copy() -> None:
    lost = {8: CORRUPT}
    canonical = dvc(1, 8, lost, log_view=2, headers=CHAIN | FORK, commit=7, low=7)
    older = dvc(0, 8, log_view=1, commit=7, low=7)
    also = dvc(2, 8, lost, log_view=2, headers=CHAIN | FORK, commit=7, low=7)
    assert verdict(older, canonical, also) == STUCK


def test_an_older_list_keeps_what_the_canonical_one_lost() -> None:
    """The canonical log names 8 and cannot read it; a replica of an older view holds it."""
    canonical = dvc(1, 8, {8: CORRUPT}, log_view=2)
    older = dvc(0, 8, log_view=1)
    assert verdict(older, canonical) == start(8)


# --- the floor ------------------------------------------------------------------------------------


def test_the_floor_is_the_highest_op_known_committed() -> None:
    assert verdict(dvc(0, 7, commit=6), dvc(1, 7, commit=5)) == start(7, floor=6)
    assert verdict(dvc(0, 7, low=6, commit=2), dvc(1, 7, commit=2)).floor == 6, "where a list ends"
    far = dvc(0, 12, low=8, commit=0)
    assert verdict(far, dvc(1, 12, low=8, commit=0)).floor == 12 - P, (
        "a pipeline is no longer than P"
    )


def test_the_commit_number_in_a_head_raises_the_floor() -> None:
    named = prepare(8, parent=CHAIN[7], view=1, commit=7).header
    lists = [dvc(i, 8, low=5, commit=5, headers=CHAIN | {8: named}) for i in range(2)]
    assert verdict(*lists) == start(8, floor=7)


def test_the_floor_itself_is_never_cut() -> None:
    two = [dvc(0, 7, {5: MISSING}), dvc(1, 7, {5: MISSING})]
    assert verdict(*two) == AWAIT_MORE
    assert verdict(*two, dvc(2, 7)) == start(7)
    nobody = verdict(*two, dvc(2, 7, {5: MISSING}))
    assert nobody.verdict == Verdict.CONTRADICTED and "nobody holds it" in nobody.reason


def test_a_canonical_log_below_the_floor_begins_no_view() -> None:
    found = verdict(dvc(0, 9, commit=9, low=6), dvc(1, 6, log_view=2, low=5))
    assert found.verdict == Verdict.CONTRADICTED
    assert found.reason == "op 9 is committed, and the log of view 2 ends at op 6"


def test_two_canonical_lists_that_disagree_begin_no_view() -> None:
    found = verdict(dvc(0, 8), dvc(1, 8, headers=CHAIN | FORK))
    assert found.verdict == Verdict.CONTRADICTED
    assert found.reason == "two prepares of op 8 stand in logs of view 1"


# --- other sizes ----------------------------------------------------------------------------------


def test_vc_R2_single_nack() -> None:
    """Two replicas commit together, so one who denies it is proof enough."""
    assert verdict(dvc(0, 8), dvc(1, 8, {8: MISSING}), replica_count=2) == start(7)
    assert verdict(dvc(0, 8), dvc(1, 7), replica_count=2) == start(7)
    assert verdict(dvc(0, 8), dvc(1, 8, {8: CORRUPT}), replica_count=2) == start(8)
    assert verdict(dvc(0, 8, {8: CORRUPT}), dvc(1, 8, {8: CORRUPT}), replica_count=2) == STUCK


@pytest.mark.parametrize("count", range(3, 7))
def test_one_nack_less_than_a_quorum_keeps_the_op(count: int) -> None:
    needed = quorums(count).nack
    for nacks in range(count + 1):
        lists = [dvc(i, 8, {8: MISSING} if i < nacks else None) for i in range(count)]
        assert verdict(*lists, replica_count=count) == start(7 if nacks >= needed else 8)


@pytest.mark.parametrize("count", range(1, 7))
def test_what_a_replication_quorum_holds_survives_every_view_change_quorum(count: int) -> None:
    """Holders may lose it later, the others never had it; whoever answers, it is not cut."""
    row = quorums(count)
    for holders in combinations(range(count), row.replication):
        for corrupt in [(), *combinations(holders, 1), holders]:
            lists = []
            for i in range(count):
                state = CORRUPT if i in corrupt else PRESENT if i in holders else MISSING
                lists.append(dvc(i, 8, {8: state}) if i % 2 or i in holders else dvc(i, 7))
            for answered in combinations(lists, row.view_change):
                found = verdict(*answered, replica_count=count)
                assert found in (start(8), AWAIT_MORE, STUCK), (holders, corrupt, answered)
                if any(d.replica in holders and d.replica not in corrupt for d in answered):
                    assert found == start(8)


def test_a_member_that_had_no_vote_before_denies_the_reconfiguration_and_nothing_is_cut() -> None:
    """It was a standby when the reconfiguration was committed, and never had it in its ring."""
    here = dvc(0, 8, commit=8, low=8)
    promoted = dvc(1, 8, {8: MISSING}, commit=4, low=8)
    assert verdict(here, promoted, replica_count=2, begun=8) == start(8, floor=8)
    later = dvc(0, 9, commit=8, low=8), dvc(1, 9, {8: MISSING, 9: MISSING}, commit=4, low=8)
    assert verdict(*later, replica_count=2, begun=8) == start(8, floor=8)
