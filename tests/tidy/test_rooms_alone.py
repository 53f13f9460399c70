"""Every room imports in a fresh interpreter in which all that it may not import does not exist."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.patience import HUNG_S
from tools import tidy

TOP = Path(__file__).resolve().parents[2]

# Hides the rooms that this one may not see, then imports its modules one by one.
PROGRAM = """
import importlib, sys
sys.path.insert(0, {top!r})
from tools import tidy, tidy_rules
room, allowed = {room!r}, tidy.floor_of({room!r})

class Hidden:
    def find_spec(self, name, path=None, target=None):
        other = tidy.room_of(name)
        above = other in ("cores", "drivers", "roles", "commands")  # holds rooms, is none
        if other not in (None, room) and not above and not tidy.reachable(room, other, allowed):
            raise ImportError(name + " is hidden from " + room)
        home = tidy_rules.ONLY_IN.get(name)
        # a driver is why its package is there, so who may use the driver has both
        used = (home or "").startswith("drivers/") and tidy.reachable(room, home, allowed)
        if home is not None and home != room and not used:
            raise ImportError(name + " is hidden from " + room)

sys.meta_path.insert(0, Hidden())
for name in {modules!r}:
    importlib.import_module(name)
"""


def rooms() -> dict[str, list[str]]:
    """room -> its modules, by name."""
    found: dict[str, list[str]] = {}
    for source in tidy.sources_read(TOP):
        if source.is_python and source.room:
            found.setdefault(source.room, []).append(source.module)
    return {room: sorted(found[room]) for room in sorted(found)}


ROOMS = {room: modules for room, modules in rooms().items() if tidy.floor_of(room) is not None}


def test_every_room_has_a_floor() -> None:
    grounds = {"cores", "drivers", "roles", "commands", "web"}  # hold rooms or data
    assert set(rooms()) - set(ROOMS) <= grounds


@pytest.mark.parametrize("room", [room for room in ROOMS if room != "reports"])
def test_room_imports_alone(room: str) -> None:
    program = PROGRAM.format(top=str(TOP), room=room, modules=ROOMS[room])
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=HUNG_S)
    assert done.returncode == 0, done.stderr
