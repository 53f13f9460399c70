"""The worlds alone find rules that are replaced: each by a seed that holds with the rule."""

import pytest

from appliance.simulation.farm.options import LEGACY, OWN, draw
from appliance.simulation.farm.world import run
from tests.simulation.farm.plants import planted

# row of docs/farm.md, "Where JRaft is unsafe" -> the world that finds its rule gone, and by what
FOUND = {
    1: (OWN, 2, "standing still"),
    5: (OWN, 66, "progress"),
    6: (OWN, 0, "yes"),
    7: (OWN, 28, "leader completeness"),
    8: (OWN, 0, "state machine safety"),
    9: (OWN, 207, "state machine safety"),
    14: (LEGACY, 40, "progress"),
    15: (OWN, 0, "linearizable reads"),
}
assert len(FOUND) >= 8


@pytest.mark.parametrize("row", FOUND)
def test_a_world_finds_a_rule_that_is_replaced(row: int) -> None:
    mode, seed, checker = FOUND[row]
    assert not run(draw(seed, mode)).failure
    with planted(row):
        outcome = run(draw(seed, mode))
    assert outcome.failure
    assert outcome.checker == checker
