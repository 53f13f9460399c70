"""What `tigerchat ship now` waits for."""

import json
from types import SimpleNamespace
from typing import Any

import pytest

from appliance.__main__ import main
from appliance.base.errors import TargetUnavailable
from appliance.commands import ship
from appliance.commands.ship import Due, elsewhere, refuse_idle, waits_for
from appliance.formats.status.shipper import ShipperStatus
from appliance.formats.status.status import parse

QUIET = {
    "shard": 0,
    "attached": True,
    "follows": False,
    "ships": False,
    "settled": False,
    "late_s": 0.0,
    "doing": "",
    "error": "",
    "closing": False,
    "generation": 0,
    "node": 0,
    "cursor": 9,
    "log_seq": 9,
    "hole": "",
    "manifests": 4,
    "headed": 4,
}
SHIPS = QUIET | {"ships": True, "settled": True}


def says(*shards: dict[str, Any]) -> ShipperStatus:
    """The shipper of a node, of these shards."""
    return parse(ShipperStatus, {"node": 0, "late_s_max": 600, "shards": shards})


def asked_of(*answers: Any) -> Any:
    """The first nodes of a site, each with what its shipper answers."""
    asked = [SimpleNamespace(index=index) for index in range(len(answers))]
    return SimpleNamespace(
        members=asked,
        name=lambda index: f"node-{index}",
        shards=lambda: [0],
        answers=lambda: list(zip(asked, answers, strict=True)),
    )


def waits(*shards: Any, due=None, elapsed_s=0.0):
    """For what the shippers of that many nodes of a site say of their one shard."""
    asked = asked_of(*(shard and says(shard) for shard in shards))
    return waits_for(asked, False, due or Due(), elapsed_s)


def test_nothing_when_the_shipper_of_each_shard_has_settled() -> None:
    assert waits(SHIPS, QUIET) == ""


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"settled": False}, "a period is not closed yet"),
        ({"late_s": 0.5}, "a period is over"),
        ({"doing": "put head 3"}, "put head 3"),
        ({"error": "safe mode"}, "safe mode"),
        ({"closing": True}, "the present period is not shipped yet"),
        ({"attached": False}, "the replica is not there"),
    ],
)
def test_whatever_the_shipper_of_a_shard_has_not_done(change: dict[str, Any], words: str) -> None:
    assert waits(QUIET, SHIPS | change) == f"shard 0 on node-1: {words}"


def test_no_period_that_ends_after_it_was_asked() -> None:
    """A machine that ships one period while the next one passes is never at rest."""
    busy = SHIPS | {"settled": False, "late_s": 1.5, "doing": "put manifest 4"}
    due = Due()
    assert waits(QUIET, busy, due=due, elapsed_s=1.0) == "shard 0 on node-1: put manifest 4"
    later = busy | {"manifests": 5}
    words = "shard 0 on node-1: the head is not put yet"
    assert waits(QUIET, later, due=due, elapsed_s=2.0) == words
    newer = busy | {"manifests": 6, "headed": 5}
    assert waits(QUIET, newer, due=due, elapsed_s=4.0) == ""


def test_somebody_to_ship_a_shard_with_records() -> None:
    nobody = (
        "shard 0: no node ships it; let one begin with `tigerchat ship now --claim --node-folder F`"
    )
    assert waits(QUIET, QUIET) == nobody
    assert waits(QUIET, None) == nobody
    assert waits(QUIET) == nobody, "a node that does not ship has shipped nothing"
    assert waits(None, None) == nobody, "nor has one that fell silent"
    assert waits(QUIET | {"log_seq": 0}, QUIET) == nobody, "one that lags knows of no records"
    claimed = QUIET | {"generation": 3, "node": 1}
    assert waits(claimed, None) == "shard 0: node-1 is to ship it and does not"
    assert waits(QUIET | {"log_seq": 0}, QUIET | {"log_seq": 0}) == ""


def test_a_site_that_ships_nothing_is_told_so() -> None:
    refuse_idle([says(), says(QUIET)])
    with pytest.raises(TargetUnavailable, match="no shipper answers"):
        refuse_idle([None, None])
    with pytest.raises(TargetUnavailable, match='ship_target is "off"'):
        refuse_idle([None, says()])


def test_a_node_alone_is_not_told_that_it_shipped_what_another_ships() -> None:
    elsewhere_shipped = QUIET | {"generation": 3, "node": 1}
    foreign = says(elsewhere_shipped)
    with pytest.raises(TargetUnavailable, match="shard 0: node-1 ships it and was not asked"):
        elsewhere(asked_of(foreign), [foreign])
    assert elsewhere(asked_of(foreign, None), [foreign, None]) == {}
    both = says(elsewhere_shipped, SHIPS | {"shard": 1, "generation": 1})
    others = elsewhere(asked_of(both), [both])
    assert others.keys() == {0}
    assert waits_for(asked_of(both), False, Due(), 0.0, others) == ""


@pytest.mark.parametrize("as_json", [False, True])
def test_what_does_not_come_in_time_ends_with_its_name_and_code_1(
    as_json: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    node = SimpleNamespace(index=0)
    answers = [says(SHIPS | {"closing": True})]
    ship_site = SimpleNamespace(
        members=[node],
        shards=lambda: [0],
        name=lambda index: f"node-{index}",
        request=lambda node, wish: answers[0],
        answers=lambda: [(node, answers[0])],
    )
    monkeypatch.setattr(ship, "_shipping_site", lambda local, node_folder: ship_site)
    words = ["ship", "now", "--close", "--wait", "0", *(["--json"] if as_json else [])]
    assert main(words) == 1
    out, err = capsys.readouterr()
    waits = "shard 0 on node-0: the present period is not shipped yet"
    assert err == f"tigerchat: not shipped after 0 s: {waits}\n"
    told = json.dumps({"done": False, "waits_for": waits, "elsewhere": []}) + "\n"
    assert out == (told if as_json else "")
    answers[0] = says(SHIPS)
    assert main(words) == 0
