"""An act is done when the member says so, and not when it has stopped to answer."""

from typing import Any

import pytest

from appliance.base.errors import StorageError
from appliance.roles.operator import farm
from appliance.roles.operator.farm import Asker


class Told(Asker):
    """Answers are given beforehand; the last one stays."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)

    def ask(self, index, wish=None):
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


def act(number: int, outcome=""):
    return {"act": {"number": number, "outcome": outcome}}


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(farm, "PATIENCE_S", 0.05)
    monkeypatch.setattr(farm, "POLL_S", 0.001)


def test_an_act_that_was_committed_is_done() -> None:
    Told({"begun": 3}, act(2), None, act(3)).do(0, {"do": "period"})


def test_why_an_act_was_not_done_is_told() -> None:
    with pytest.raises(StorageError, match="nobody leads"):
        Told({"begun": 3}, act(2), act(3, "nobody leads")).do(0, {"do": "period"})


@pytest.mark.parametrize("answer", [None, act(2)])
def test_an_act_of_which_nothing_is_heard_is_not_taken_for_done(
    answer: dict[str, dict[str, int | str]] | None,
) -> None:
    with pytest.raises(StorageError, match="not committed in time"):
        Told({"begun": 3}, answer).do(0, {"do": "period"})
