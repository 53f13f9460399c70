"""Each planted bug is found by its seed, and the seed passes without it."""

import pytest

from appliance.simulation.federation.report import run
from tests.simulation.federation.plants import PLANTS

# plant -> (seed that finds it, rule by which)
FOUND = {
    "waiting_meets": (2, "causal delivery"),
    "filter_proves_absence": (1, "causal delivery"),
    "asked_once": (10, "convergence"),
    "clock_stays": (0, "sorts after its dependencies"),
    "saturated_counts": (278, "filter evidence"),
    "new_id_after_takeover": (1, "same id after takeover"),
    "newest_alone": (25, "convergence"),
    "logged_before_commit": (0, "sorts after its dependencies"),
    "repeated_with_filter": (2, "repeated without filter"),
}


def test_every_plant_has_its_seed() -> None:
    assert set(FOUND) == set(PLANTS) and len(PLANTS) >= 6


@pytest.mark.parametrize("name", PLANTS)
def test_planted_bug_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seed, rule = FOUND[name]
    assert not run(seed).failure
    PLANTS[name].sow(monkeypatch)
    assert run(seed).rule == rule
