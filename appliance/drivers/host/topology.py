"""The cores of the machine, as the kernel describes them: which share a physical core, which it
keeps free of everything that is not put there.
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from appliance.drivers.host.process import cores

SYSTEM = Path("/sys/devices/system/cpu")


@dataclass(frozen=True, slots=True)
class Core:
    """A logical core, what `taskset` calls a CPU. `physical` is equal for those that share the
    units of one: a busy neighbour there costs half the speed."""

    number: int
    physical: tuple[int, int]  # package, core
    isolated: bool = False  # `isolcpus=`: nothing runs there but what was put there


def parse_list(text: str) -> set[int]:
    """Numbers in the kernel's form: "0-3,8,10-11"."""
    found: set[int] = set()
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        if first:
            found |= set(range(int(first), int(last or first) + 1))
    return found


def read(system: Path = SYSTEM, allowed: Iterable[int] | None = None) -> list[Core]:
    """The cores this process may use; the isolated ones too, which nobody gets by default, unless
    it was confined to some. A machine that says nothing of its cores has as many physical ones as
    logical."""
    isolated = parse_list(_text(system / "isolated"))
    usable = set(cores() if allowed is None else allowed)
    online = parse_list(_text(system / "online"))
    if usable == online - isolated:
        usable |= online & isolated
    return [
        Core(number, _physical(system / f"cpu{number}" / "topology", number), number in isolated)
        for number in sorted(usable)
    ]


def _physical(path: Path, number: int) -> tuple[int, int]:
    package, core = _text(path / "physical_package_id"), _text(path / "core_id")
    if not package or not core:
        return -1, number
    return int(package), int(core)


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def of_process(pid: int) -> list[int]:
    """The cores that a process may use now."""
    return sorted(os.sched_getaffinity(pid))
