"""The rule that chooses a view's log survives thousands of histories; no part of it can go."""

import pytest

from tests.simulation.dvc_model import History, Lost, Rule

HISTORIES = 2_000
HISTORIES_UNTIL_CAUGHT = 3_000


def test_no_acknowledged_prepare_is_lost_or_forked_in_thousands_of_histories() -> None:
    started = committed = 0
    for seed in range(HISTORIES):
        history = History(seed)
        history.run()
        started += history.started
        committed += len(history.committed) - 1
    assert started > 10 * HISTORIES, "the histories change views often enough to mean something"
    assert committed > 10 * HISTORIES, "and commit often enough"


@pytest.mark.parametrize("rule", Rule, ids=lambda rule: rule.name.lower())
def test_a_history_is_lost_when_one_rule_is_left_out(rule: Rule) -> None:
    for seed in range(HISTORIES_UNTIL_CAUGHT):
        try:
            History(seed, without=rule).run()
        except (Lost, AssertionError):
            return
    pytest.fail(f"nothing was lost in {HISTORIES_UNTIL_CAUGHT} histories without: {rule.value}")
