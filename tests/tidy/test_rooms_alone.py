"""Every room imports in an interpreter in which all that it may not import does not exist."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools import tidy, tidy_source

TOP = Path(__file__).resolve().parents[2]

# For each line, a room and its modules: hides the rooms that this one may not see, then imports its
# modules one by one, in a fork that has none of them yet, nor what only some rooms may use.
PROGRAM = """
import importlib, json, os, sys, traceback
sys.path.insert(0, {top!r})
from tools import tidy, tidy_rules, tidy_source
import asyncio, ctypes, dataclasses, numpy

class Hidden:
    def __init__(self, room):
        self.room, self.allowed = room, tidy.floor_of(room)

    def find_spec(self, name, path=None, target=None):
        room, allowed = self.room, self.allowed
        other = tidy_source.room_of(name)
        above = other in ("cores", "drivers", "roles", "commands")  # holds rooms, is none
        if other not in (None, room) and not above and not tidy.reachable(room, other, allowed):
            raise ImportError(name + " is hidden from " + room)
        home = tidy_rules.ONLY_IN.get(name)
        # a room is why its package is there, so who may use the room has both
        holders = ("drivers/", "roles/")
        used = (home or "").startswith(holders) and tidy.reachable(room, home, allowed)
        if home is not None and home != room and not used:
            raise ImportError(name + " is hidden from " + room)

def imported(room, modules):
    sys.meta_path.insert(0, Hidden(room))
    for name in modules:
        importlib.import_module(name)

assert not any(tidy_source.room_of(name) or name in tidy_rules.ONLY_IN for name in sys.modules)
for line in sys.stdin:
    reading, writing = os.pipe()
    if os.fork() == 0:
        said = ""
        try:
            imported(*json.loads(line))
        except BaseException:
            said = traceback.format_exc()
        os.write(writing, said.encode()[-60_000:])
        os._exit(0 if not said else 1)
    os.close(writing)
    with os.fdopen(reading) as answer:
        said = answer.read()
    code = os.waitstatus_to_exitcode(os.wait()[1])
    print(json.dumps([code, said]), flush=True)
"""


def rooms() -> dict[str, list[str]]:
    """room -> its modules, by name."""
    found: dict[str, list[str]] = {}
    for source in tidy_source.sources_read(TOP):
        if source.is_python and source.room:
            found.setdefault(source.room, []).append(source.module)
    return {room: sorted(found[room]) for room in sorted(found)}


ROOMS = {room: modules for room, modules in rooms().items() if tidy.floor_of(room) is not None}


def test_every_room_has_a_floor() -> None:
    grounds = {"cores", "drivers", "roles", "commands", "web"}  # hold rooms or data
    assert set(rooms()) - set(ROOMS) <= grounds


@pytest.fixture(scope="module")
def importer() -> Iterator["subprocess.Popen[str]"]:
    command = [sys.executable, "-c", PROGRAM.format(top=str(TOP))]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield process


@pytest.mark.parametrize("room", [room for room in ROOMS if room != "reports"])
def test_room_imports_alone(importer: "subprocess.Popen[str]", room: str) -> None:
    assert importing(importer, room, ROOMS[room]) == [0, ""]


def importing(importer: "subprocess.Popen[str]", room: str, modules: list[str]) -> list[object]:
    """Exit code and what was raised."""
    assert importer.stdin is not None and importer.stdout is not None
    print(json.dumps([room, modules]), file=importer.stdin, flush=True)
    return json.loads(importer.stdout.readline())


@pytest.mark.parametrize(
    ("room", "module"),
    [
        ("base", "appliance.formats.record"),
        ("cores/vsr", "appliance.drivers.network.ask"),
        ("cores/rooms", "appliance.cores.vsr.wal"),
        ("roles/edge", "appliance.roles.replica.role"),
        ("commands/start", "pyspark"),
        ("simulation", "lmdb"),
    ],
)
def test_a_room_finds_nothing_that_it_may_not_import(
    importer: "subprocess.Popen[str]", room: str, module: str
) -> None:
    for _ in range(2):  # nor after another room has imported what it may
        code, said = importing(importer, room, [module])
        assert code == 1 and f"is hidden from {room}" in str(said)
        assert importing(importer, "roles/replica", ROOMS["roles/replica"]) == [0, ""]
