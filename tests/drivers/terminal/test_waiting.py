"""A command that waits says what for, once it lasts."""

import threading

import pytest

from appliance.drivers.terminal.waiting import Waiting
from tests.patience import HUNG_S


class Lines:
    """Stands for the stream that is written to; tells when there are so many lines."""

    def __init__(self, wanted: int) -> None:
        self.text, self._wanted, self.there = "", wanted, threading.Event()

    def write(self, text: str) -> int:
        self.text += text
        if self.text.count("\n") >= self._wanted:
            self.there.set()
        return len(text)

    def flush(self) -> None:
        """Everything is there."""


def told(monkeypatch: pytest.MonkeyPatch, wanted: int) -> Lines:
    lines = Lines(wanted)
    monkeypatch.setattr("sys.stderr", lines)
    return lines


def test_what_lasts_is_told_once_and_what_comes_later_too(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = told(monkeypatch, 1)
    with Waiting("ship", after_s=0.01) as waiting:
        waiting.on("put\nhead 3")
        assert lines.there.wait(HUNG_S)
        second = told(monkeypatch, 1)
        waiting.on("")
        waiting.on("safe mode")
        assert second.there.wait(HUNG_S)
    assert lines.text == "ship: waits: put\ufffdhead 3\n"
    assert second.text == "ship: waits: safe mode\n"


def test_what_is_over_in_time_is_not_told(capsys: pytest.CaptureFixture[str]) -> None:
    with Waiting("ship") as waiting:
        waiting.on("an answer")
    assert capsys.readouterr() == ("", "")
