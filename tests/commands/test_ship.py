"""What `tigerchat ship now` waits for."""

from types import SimpleNamespace
from typing import Any

import pytest

from appliance.commands.ship import Due, waits_for

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
    "log_seq": 9,
    "manifests": 4,
    "headed": 4,
}
SHIPS = QUIET | {"ships": True, "settled": True}


def waits(*shards: Any, nodes=2, due=None, elapsed_s=0.0):
    """For what the shippers of that many nodes of a site of two say of their one shard."""
    asked = [SimpleNamespace(index=index) for index in range(nodes)]
    answers = [
        (node, shard and {"shards": [shard]}) for node, shard in zip(asked, shards, strict=True)
    ]
    return waits_for(
        SimpleNamespace(
            nodes=asked,
            site=SimpleNamespace(nodes=range(2)),
            name=lambda index: f"node-{index}",
            answers=lambda: answers,
        ),
        False,
        due or Due(),
        elapsed_s,
    )


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


def test_a_node_that_claims_a_shard_with_records_when_all_nodes_were_asked() -> None:
    nobody = (
        "shard 0: no node ships it; let one begin with `tigerchat ship now --claim --node-folder F`"
    )
    assert waits(QUIET, QUIET) == nobody
    assert waits(QUIET, None) == nobody
    assert waits(QUIET, nodes=1) == ""
    assert waits(QUIET | {"log_seq": 0}, QUIET | {"log_seq": 0}) == ""
