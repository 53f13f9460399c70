"""An act is done when the member says so, and not when it has stopped to answer."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from appliance.base.errors import FarmPostFailed, StorageError
from appliance.cores.directory.directory import PERIOD_MS_MIN
from appliance.roles.farm.acts import ACTS_TOLD_MAX, Acts
from appliance.roles.operator import farm
from appliance.roles.operator.farm import Asker


class Told(Asker):
    """Answers are given beforehand; the last one stays."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.site: Any = SimpleNamespace(nodes=[SimpleNamespace(name="node-0")])

    def ask(self, index, wish=None):
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


def act(*ended: Any):
    """What is told when these acts were the last to end, each a number or with its outcome."""
    rows = [row if isinstance(row, tuple) else (row, "") for row in ended]
    return {"act": {"ended": [list(row) for row in rows], "waiting": 0}}


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(farm, "PATIENCE_S", 0.05)
    monkeypatch.setattr(farm, "POLL_S", 0.001)


def test_an_act_that_was_committed_is_done() -> None:
    Told({"begun": 3}, act(2), None, act(3)).do(0, {"do": "period"})


def test_why_an_act_was_not_done_is_told() -> None:
    with pytest.raises(StorageError, match="nobody leads"):
        Told({"begun": 3}, act(2), act((3, "nobody leads"))).do(0, {"do": "period"})


def test_an_act_that_failed_is_not_done_because_the_next_one_was() -> None:
    with pytest.raises(StorageError, match="nobody leads"):
        Told({"begun": 3}, act(2), act(2, (3, "nobody leads"), 4)).do(0, {"do": "period"})


@pytest.mark.parametrize("answer", [None, act(), act(2), act(4, 5)])
def test_an_act_of_which_nothing_is_heard_is_not_taken_for_done(
    answer: dict[str, Any] | None,
) -> None:
    with pytest.raises(StorageError, match="not committed in time"):
        Told({"begun": 3}, answer).do(0, {"do": "period"})


def test_a_directory_is_published_when_a_newer_one_is_there() -> None:
    def version(number: int) -> dict[str, Any]:
        return {"directory": {"version": number}}

    Told(version(7), {"begun": 0}, version(7), None, version(8)).publish(0)
    with pytest.raises(StorageError, match="not committed in time"):
        Told(version(7), {"begun": 0}, version(7)).publish(0)


def test_the_lead_is_handed_over_when_another_member_has_it() -> None:
    def led_by(member: int) -> dict[str, Any]:
        return {"leader": member}

    Told({"begun": 0}, led_by(-1), led_by(1), led_by(2)).hand_over(0)
    for member in (-1, 1):
        with pytest.raises(StorageError, match="no other member has taken it"):
            Told({"begun": 0}, led_by(member)).hand_over(0)


class Alone:
    """A role whose member is there and whose posts are refused as often as it is said."""

    def __init__(self, *refusals: str) -> None:
        self.refusals, self.id, self.out = list(refusals), 1, ""
        self.member: Any = SimpleNamespace(directory=SimpleNamespace())
        self.audit: Any = SimpleNamespace(note=lambda wish, outcome: None)

    async def post_config(self, config: dict[str, Any]) -> None:
        if why := self.refusals.pop(0):
            raise FarmPostFailed(why)

    async def remove(self, server_id: int) -> bool:
        return True


def test_each_act_keeps_its_own_outcome_and_a_later_life_other_numbers() -> None:
    role = Alone("nobody leads", "")
    acts = Acts(role)
    period = {"do": "period", "ms": PERIOD_MS_MIN}
    first, second = (acts.on_wish(period)["begun"] for _ in range(2))
    asyncio.run(acts.perform())
    assert acts.told() == {"ended": [[first, "nobody leads"], [second, ""]], "waiting": 0}
    assert Acts(Alone()).on_wish(period)["begun"] > second
    role.refusals += [""] * ACTS_TOLD_MAX
    for _ in range(ACTS_TOLD_MAX):
        acts.on_wish(period)
        asyncio.run(acts.perform())
    assert len(acts.told()["ended"]) == ACTS_TOLD_MAX
