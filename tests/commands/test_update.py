"""`tigerchat update`: a good update is tried and kept, one that is never ready is left, and what is
not signed, older or damaged changes nothing."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from appliance.__main__ import main
from appliance.base.signature import SigningKey
from appliance.formats.update_bundle import parse_head

SEED, OTHER_SEED = bytes([7]) * 32, bytes([8]) * 32
# Stands in for the frozen program: all that `update` asks of it is that it runs.
PROGRAM = "#!/bin/sh\n# release {}\nexit {}\n"


class Machine:
    """A folder with slots, and whoever releases."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self.slots, self._capsys = folder, folder / "slots", capsys
        for name, seed in (("key", SEED), ("other-key", OTHER_SEED)):
            (folder / name).write_text(seed.hex())
            (folder / name).chmod(0o600)
        key = SigningKey(SEED).public.hex()
        self.run("begin-with", self.tree(5), "--key", key, "--counter", 5, slots=True)

    def tree(self, counter: int, code: int = 0) -> Path:
        tree = self.folder / f"tree-{counter}"
        (tree / "lib").mkdir(parents=True, exist_ok=True)
        (tree / "tigerchat").write_text(PROGRAM.format(counter, code))
        (tree / "tigerchat").chmod(0o755)
        (tree / "lib" / "part").write_bytes(os.urandom(1000))
        (tree / "lib" / "link").unlink(missing_ok=True)
        (tree / "lib" / "link").symlink_to("part")
        return tree

    def bundle(self, counter: int, key: str = "key", code: int = 0) -> Path:
        made = self.folder / f"{counter}.update"
        tree, release = self.tree(counter, code), f"0.{counter}"
        words = ["--key", self.folder / key, "--counter", counter, "--release", release]
        self.run("pack", tree, made, *words)
        return made

    def run(self, *words: object, slots: bool = False, code: int = 0) -> str:
        more = ["--slots", str(self.slots)] if slots else []
        assert main(["update", *map(str, words), *more]) == code
        told = self._capsys.readouterr()
        return told.err if code else told.out

    def refused(self, bundle: Path, sentence: str) -> None:
        before = self.everything()
        assert sentence in self.run("stage", bundle, slots=True, code=1)
        assert self.everything() == before

    def everything(self) -> dict[str, Any]:
        return {
            str(path.relative_to(self.slots)): os.readlink(path)
            if path.is_symlink()
            else path.read_bytes()
            for path in sorted(self.slots.rglob("*"))
            if path.is_symlink() or path.is_file()
        }

    @property
    def state(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.run("status", slots=True))
        return found

    def runs(self) -> str:
        return (self.slots / "current" / "tigerchat").read_text().splitlines()[1]


@pytest.fixture
def machine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Machine:
    return Machine(tmp_path, capsys)


def test_an_update_that_is_ready_once_is_kept(machine: Machine) -> None:
    assert "0.6 is staged" in machine.run("stage", machine.bundle(6), slots=True)
    assert "0.6 is tried" in machine.run("on-start", slots=True)
    assert machine.runs() == "# release 6"
    assert (machine.slots / "known" / "tigerchat").read_text().splitlines()[1] == "# release 5"
    assert os.readlink(machine.slots / "current" / "lib" / "link") == "part"
    machine.run("on-ready", slots=True)
    assert machine.state["known"] == "b" and machine.state["counter"] == 6
    assert os.readlink(machine.slots / "known") == "b"
    for _ in range(5):  # from now on it may die as often as it likes
        machine.run("on-start", slots=True)
    assert machine.runs() == "# release 6"
    machine.run("stage", machine.bundle(7), slots=True)
    assert machine.state["trial"] == "a"


def test_an_update_that_is_never_ready_is_left_after_three_starts(machine: Machine) -> None:
    machine.run("stage", machine.bundle(6), slots=True)
    for left in (2, 1, 0):
        assert f"{left} tries are left" in machine.run("on-start", slots=True)
        assert machine.runs() == "# release 6"
    told = machine.run("on-start", slots=True)
    assert "the update to 0.6 was never ready in 3 starts" in told and "runs again" in told
    assert machine.runs() == "# release 5" and machine.state["counter"] == 5
    assert "never ready" in machine.state["told"]
    machine.run("stage", machine.bundle(7), slots=True)  # and a better one may come


def test_links_of_before_a_power_cut_are_made_to_follow_the_state(machine: Machine) -> None:
    machine.run("stage", machine.bundle(6), slots=True)
    (machine.slots / "current").unlink()
    (machine.slots / "current").symlink_to("a")
    machine.run("on-start", slots=True)
    assert machine.runs() == "# release 6"


def test_what_is_not_signed_by_the_known_key_is_refused(machine: Machine) -> None:
    machine.refused(machine.bundle(6, key="other-key"), "not signed by the key")
    bundle = machine.bundle(6)
    raw = bytearray(bundle.read_bytes())
    _, start = parse_head(bytes(raw), SigningKey(SEED).public)
    raw[start - 64 : start] = bytes(64)
    bundle.write_bytes(raw)
    machine.refused(bundle, "not signed by the key")
    bundle.write_bytes(b"anything")
    machine.refused(bundle, "is no update of tigerchat")


@pytest.mark.parametrize("counter", [4, 5])
def test_a_release_that_is_not_newer_is_refused(machine: Machine, counter: int) -> None:
    machine.refused(machine.bundle(counter), "is older than what runs here")


def test_bundles_cut_short_or_damaged_are_refused(machine: Machine) -> None:
    bundle = machine.bundle(6)
    whole = bundle.read_bytes()
    for content, sentence in (
        (whole[:-512], "was cut short or grew"),
        (whole + b"x", "was cut short or grew"),
        (whole[:-5000] + b"?" + whole[-4999:], "was damaged"),
        (whole[:40] + b"?" + whole[41:], "not signed by the key"),
    ):
        bundle.write_bytes(content)
        machine.refused(bundle, sentence)


def test_a_program_that_does_not_run_here_is_refused(machine: Machine) -> None:
    bundle = machine.bundle(6, code=1)
    assert "does not run here" in machine.run("stage", bundle, slots=True, code=1)
    assert machine.state["trial"] == "" and machine.runs() == "# release 5"
