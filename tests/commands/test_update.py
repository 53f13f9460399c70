"""`tigerchat update`: a good update is tried and kept, one that is never ready is left, and what is
not signed, older, damaged, or not for what lies here changes nothing."""

import hashlib
import json
import os
import platform
import sys
from pathlib import Path
from typing import Any

import pytest

from appliance import VERSION
from appliance.__main__ import main
from appliance.base.errors import FormatError
from appliance.base.limits import SUPERBLOCK_COPIES
from appliance.base.signature import CONTEXT_UPDATE, SigningKey
from appliance.formats import superblock as sb
from appliance.formats import update_bundle
from appliance.formats.geometry import SUPERBLOCK_COPY_SIZE, SUPERBLOCK_COPY_STRIDE
from appliance.formats.update_bundle import Manifest, encode_head, parse_head
from appliance.formats.volume_level import VOLUME_LEVEL
from tests.cores.vsr.test_open import later
from tests.ports import FreePorts
from tests.roles.replica_group import REPO

SEED, OTHER_SEED = bytes([7]) * 32, bytes([8]) * 32
PUBLIC = SigningKey(SEED).public
# Stands in for the frozen program: what `update` asks of it is whether it runs, and what it takes.
PROGRAM = """#!/bin/sh
# release {counter}
case "$*" in
"update fits"*) {fits} ;;
*) exit {code} ;;
esac
"""
LEVEL = "echo '{{\"volume_level\": {}}}'"
OF_BEFORE = "echo 'No such command' >&2; exit 2"  # there was no number yet
REAL = f"cd {REPO}; exec {sys.executable} -m appliance $@"


class Machine:
    """A folder with slots, and whoever releases."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self.slots, self._capsys = folder, folder / "slots", capsys
        for name, seed in (("key", SEED), ("other-key", OTHER_SEED)):
            (folder / name).write_text(seed.hex())
            (folder / name).chmod(0o600)
        key = SigningKey(SEED).public.hex()
        self.run("begin-with", self.tree(5), "--key", key, "--counter", 5, slots=True)

    def tree(self, counter: int, code: int = 0, fits: str = LEVEL.format(2)) -> Path:
        tree = self.folder / f"tree-{counter}"
        (tree / "lib").mkdir(parents=True, exist_ok=True)
        text = PROGRAM.format(counter=counter, code=code, fits=fits)
        (tree / "tigerchat").write_text(text)
        (tree / "tigerchat").chmod(0o755)
        (tree / "lib" / "part").write_bytes(os.urandom(1000))
        (tree / "lib" / "link").unlink(missing_ok=True)
        (tree / "lib" / "link").symlink_to("part")
        return tree

    def bundle(
        self,
        counter: int,
        *more: object,
        key: str = "key",
        code: int = 0,
        fits: str = LEVEL.format(2),
    ) -> Path:
        made = self.folder / f"{counter}.update"
        tree, release = self.tree(counter, code, fits), f"0.{counter}"
        words = ["--key", self.folder / key, "--counter", counter, "--release", release]
        self.run("pack", tree, made, *words, *more)
        return made

    def run(self, *words: object, slots: bool = False, code: int = 0) -> str:
        more = ["--slots", str(self.slots)] if slots else []
        assert main(["update", *map(str, words), *more]) == code
        told = self._capsys.readouterr()
        return told.err if code else told.out

    def refused(self, bundle: Path, sentence: str, *words: object) -> str:
        before = self.everything()
        told = self.run("stage", bundle, *words, slots=True, code=1)
        assert sentence in told
        assert self.everything() == before
        return told

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
    machine.refused(machine.bundle(6, code=1), "does not run here: it said nothing")
    bundle = machine.bundle(6)
    raw = bundle.read_bytes()
    assert raw.count(b"#!/bin/sh") == 1
    payload = raw.replace(b"#!/bin/sh", b"#!/no/sh ")[parse_head(raw, PUBLIC)[1] :]
    size, digest = len(payload), hashlib.sha256(payload).hexdigest()
    head = encode_head(Manifest("0.6", 6, platform.machine(), size, digest), SigningKey(SEED))
    bundle.write_bytes(head + payload)
    machine.refused(bundle, "does not run here")


# --- what an update cannot take back, or not take -------------------------------------------------


def test_an_update_that_cannot_be_taken_back_says_so_before_anything_is_changed(
    machine: Machine,
) -> None:
    bundle = machine.bundle(6, fits=LEVEL.format(3))
    told = machine.refused(bundle, "there is no way back")
    assert f"0.6 writes into volumes what {VERSION}, which runs here, does not know" in told
    assert "--no-way-back" in told
    told = machine.run("stage", bundle, "--no-way-back", slots=True)
    assert "0.6 is staged" in told and f"{VERSION} would halt with VOLUME_NEWER" in told
    machine.run("on-start", slots=True)
    machine.run("on-ready", slots=True)
    machine.refused(machine.bundle(7), "0.7 does not know all that 0.6", "--no-way-back")
    assert "0.6 runs again" in machine.run(
        "stage", machine.bundle(8, fits=LEVEL.format(3)), slots=True
    )


def test_what_a_program_of_before_knows_is_not_guessed(machine: Machine) -> None:
    """It tells no number: less than any that does."""
    machine.refused(machine.bundle(6, fits=OF_BEFORE), "0.6 does not know all that")
    known = machine.slots / "known" / "tigerchat"
    for nothing in (OF_BEFORE, "echo no JSON", "echo '{}'", 'echo \'{"volume_level": "2"}\''):
        known.write_text(PROGRAM.format(counter=5, code=0, fits=nothing))
        machine.refused(machine.bundle(6, fits=LEVEL.format(1)), "there is no way back")
    known.unlink()
    machine.refused(machine.bundle(6, fits=LEVEL.format(1)), "there is no way back")


def test_an_update_that_follows_a_later_release_than_runs_here_is_refused(machine: Machine) -> None:
    told = machine.refused(
        machine.bundle(8, "--counter-least", 6), "follows release 6 or a later one"
    )
    assert "and 5 runs here" in told and "stage one between" in told
    assert "0.7 is staged" in machine.run(
        "stage", machine.bundle(7, "--counter-least", 5), slots=True
    )


def parsed(**more: object) -> Manifest:
    """From a manifest of before there was a least release, and `more`."""
    plain = {"version": "0.6", "counter": 6, "arch": "m", "payload_size": 1, "payload_sha256": ""}
    text = json.dumps({**plain, **more}).encode()
    signed = update_bundle._HEAD.pack(update_bundle._MAGIC, len(text)) + text
    return parse_head(signed + SigningKey(SEED).sign(CONTEXT_UPDATE, signed), PUBLIC)[0]


def test_an_update_that_follows_itself_is_not_packed(machine: Machine) -> None:
    tree, words = machine.tree(5, 0, LEVEL.format(2)), ("--key", machine.folder / "key")
    for least in (5, 9):
        said = machine.run(
            *("pack", tree, machine.folder / "none.update", *words),
            *("--counter", 5, "--counter-least", least),
            code=2,
        )
        assert f"--counter-least is {least}" in said
    assert not (machine.folder / "none.update").exists()


def test_a_bundle_of_before_or_of_a_later_version_is_read_for_what_is_known() -> None:
    assert parsed().counter_least == 0 and parsed(counter_least=5).counter_least == 5
    assert parsed(of_a_later_version=[1]) == parsed()
    with pytest.raises(FormatError, match="another version"):
        parsed(counter_least="5")


def test_slots_of_a_later_version_are_read_for_what_is_known_of_them(machine: Machine) -> None:
    path = machine.slots / "state.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "of_a_later_version": [1]}))
    assert "runs" in machine.run("on-start", slots=True) and machine.runs() == "# release 5"
    path.write_text("{}")
    assert "is damaged" in machine.run("on-start", slots=True, code=1)


def test_an_update_that_would_not_start_on_what_lies_here_is_refused(
    machine: Machine,
    tmp_path: Path,
    free_ports: FreePorts,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The update is the real program, the node one whose volume a later version has written."""
    words = [
        "--nodes",
        1,
        "--shards",
        2,
        "--ports",
        free_ports(1)[0],
        "--geometry",
        "small",
        "--brief",
    ]
    assert main(["format", "--local", str(tmp_path / "run"), *map(str, words)]) == 0
    capsys.readouterr()
    node = tmp_path / "run" / "node-0"

    def looked_at(code: int) -> str:
        before = {path: path.lstat().st_mtime_ns for path in node.rglob("*")}
        told = machine.run("fits", "--node-folder", node, code=code)
        assert {path: path.lstat().st_mtime_ns for path in node.rglob("*")} == before
        return told

    assert json.loads(looked_at(0)) == {"version": VERSION, "volume_level": VOLUME_LEVEL}
    (node / "shard-0" / "volume.json").rename(node / "aside")
    looked_at(0)  # a start goes on with the other one
    (node / "aside").rename(node / "shard-0" / "volume.json")
    with (node / "shard-1" / "data").open("r+b") as file:
        for copy in range(SUPERBLOCK_COPIES):
            file.seek(copy * SUPERBLOCK_COPY_STRIDE)
            known = sb.decode(file.read(SUPERBLOCK_COPY_SIZE))
            assert known is not None
            file.seek(copy * SUPERBLOCK_COPY_STRIDE)
            file.write(later(known[0], copy))
    assert "VOLUME_NEWER" in looked_at(1)  # a start goes on here as well, that replica never
    text = PROGRAM.format(counter=5, code=0, fits=LEVEL.format(VOLUME_LEVEL))
    (machine.slots / "known" / "tigerchat").write_text(text)
    bundle = machine.bundle(6, fits=REAL)
    told = machine.refused(bundle, "0.6 would not start on", "--node-folder", node)
    assert "VOLUME_NEWER" in told and "nothing was changed" in told
    (node / "site.toml").write_text("version = 2")
    assert "site.toml" in looked_at(2)
    absent = machine.run("stage", bundle, "--node-folder", tmp_path, slots=True, code=2)
    assert "is no folder of a formatted node" in absent
