"""The checker that holds all votes and starts of one view against each other."""

from types import SimpleNamespace

import pytest

from appliance.formats.envelope import OPERATION_NOOP, OPERATION_RESERVED
from appliance.simulation.checkers.views import VIEWS_KEPT, Views
from appliance.simulation.failure import Violation


def listed(op: int, *, view: int = 2, blank: bool = False, other: bool = False) -> SimpleNamespace:
    """A header of a list."""
    operation = OPERATION_RESERVED if blank else OPERATION_NOOP
    digest = b"other" if other else b"op %d" % op
    return SimpleNamespace(op=op, viewstamp=view, operation=operation, digest=digest)


def start(views: Views, headers: list[SimpleNamespace], view: int = 3) -> None:
    views.on_start_view(0, SimpleNamespace(viewstamp=view, op=headers[0].op), headers)


def vote(views: Views, headers: list[SimpleNamespace], log_view: int = 3) -> None:
    views.on_do_view_change(1, SimpleNamespace(epoch=0, aux=log_view, op=headers[0].op), headers)


@pytest.fixture
def views() -> Views:
    """View 3 has begun with ops 5 to 7 of view 2."""
    checker = Views()
    start(checker, [listed(7), listed(6), listed(5)])
    return checker


def test_votes_with_the_log_of_a_view_may_have_more_than_its_start(views: Views) -> None:
    vote(views, [listed(8, view=3), listed(7), listed(6)])
    vote(views, [listed(7), listed(6, blank=True)])  # its last op: committed, and lost here
    vote(views, [listed(2)], log_view=2)


def test_a_vote_that_lists_another_prepare_than_its_view_had_is_a_violation(views: Views) -> None:
    with pytest.raises(Violation, match="lists another op 6 in the log of view 3"):
        vote(views, [listed(7), listed(6, other=True), listed(5)])


def test_two_votes_of_one_log_that_differ_are_a_violation_though_it_never_began(
    views: Views,
) -> None:
    vote(views, [listed(4)], log_view=2)
    with pytest.raises(Violation, match="lists another op 4 in the log of view 2"):
        vote(views, [listed(4, other=True)], log_view=2)


def test_a_vote_that_ends_below_the_start_of_its_view_is_a_violation(views: Views) -> None:
    with pytest.raises(Violation, match="began with head 7, and lists nothing above op 6"):
        vote(views, [listed(6), listed(5)])


def test_a_blank_where_the_start_named_an_op_is_a_violation(views: Views) -> None:
    with pytest.raises(Violation, match="leaves op 6 blank, which the start"):
        vote(views, [listed(7), listed(6, blank=True), listed(5)])


def test_a_start_that_is_told_again_when_the_log_has_grown_moves_no_bound(views: Views) -> None:
    start(views, [listed(9, view=3), listed(8, view=3)])
    vote(views, [listed(7), listed(6), listed(5)])
    fresh = Views()
    start(fresh, [listed(9, view=3), listed(8, view=3)])  # as the group was formatted
    vote(fresh, [listed(1, view=3)])


def test_views_of_long_ago_are_forgotten(views: Views) -> None:
    for view in range(4, VIEWS_KEPT + 4):
        start(views, [listed(7)], view)
    vote(views, [listed(6)])


def test_a_view_of_a_later_epoch_is_named_by_both_numbers(views: Views) -> None:
    later = 3 | 2 << 32
    start(views, [listed(9)], view=later)
    with pytest.raises(Violation, match="lists another op 9 in the log of view 3 of epoch 2 than"):
        start(views, [listed(9, other=True)], view=later)


def test_a_volume_made_anew_votes_with_no_log_in_a_later_epoch_until_it_holds_something() -> None:
    checker, later = Views(), 1 << 32
    checker.on_start_view(0, SimpleNamespace(viewstamp=later, op=9), [listed(9), listed(8)])
    empty = SimpleNamespace(epoch=1, aux=0, op=0)
    checker.on_format(1)
    checker.on_do_view_change(1, empty, [listed(0, view=0)])
    checker.on_prepare_ok(1)
    with pytest.raises(Violation, match="began with head 9, and lists nothing above op 0"):
        checker.on_do_view_change(1, empty, [listed(0, view=0)])


def test_who_was_never_made_anew_does_not_vote_with_no_log(views: Views) -> None:
    views.on_start_view(0, SimpleNamespace(viewstamp=1 << 32, op=9), [listed(9)])
    with pytest.raises(Violation, match="began with head 9, and lists nothing above op 0"):
        vote = SimpleNamespace(epoch=1, aux=0, op=0)
        views.on_do_view_change(1, vote, [listed(0, view=0)])
