"""The figures of the fault suite are what the judges found, added up over runs."""

import json
from pathlib import Path

import pytest

from tests.system.fault_figures import VARIABLE, add_figures
from tests.system.ledger import Violation

SPOKEN = {"sent": {"prepare": 3}, "received": {"prepare": 2}}


def test_trials_add_up_and_a_lost_message_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "figures.json"
    monkeypatch.setenv(VARIABLE, str(path))
    add_figures({"kill -9": 2}, acknowledged=10, violations=[], spoken=SPOKEN)
    found = [Violation("lost", "op 3"), Violation("doubled", "op 4")]
    add_figures({"kill -9": 1, "SIGSTOP": 1}, acknowledged=5, violations=found, spoken=SPOKEN)
    assert json.loads(path.read_text()) == {
        "runs": 2,
        "acknowledged": 15,
        "violations": 2,
        "lost": 1,
        "hurt": {"SIGSTOP": 1, "kill -9": 3},
        "sent": {"prepare": 6},
        "received": {"prepare": 4},
    }


def test_nothing_is_written_unless_it_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.chdir(tmp_path)
    add_figures({}, acknowledged=1, violations=[], spoken=SPOKEN)
    assert not list(tmp_path.iterdir())
