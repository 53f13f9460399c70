"""Whoever keeps processes: a node's supervisor those of its roles, a local site's its nodes."""

from typing import ClassVar

from msgspec import UNSET, UnsetType

from appliance.formats.status.part import Part
from appliance.formats.status.status import Status
from appliance.formats.volume_level import NOT_TOLD


class ExaminedMachine(Part, frozen=True, kw_only=True):
    """What a node found when it compared its machine with a profile: the names of what differs."""

    profile: str  # or why there is none
    differences: list[str]


class ChildStatus(Part, frozen=True, kw_only=True):
    """One process. `halt`: why it stopped because going on could lose data; `halt_since_ms` is of
    the machine's clock that only goes forward. `silent_ms` is 0 of a child that was heard lately. A
    child that is `spawning` may have a process whose `pid` is not known yet."""

    name: str
    pid: int | None
    spawning: bool = False
    ready: bool
    wanted: bool = True
    replaced: bool = False  # it is run by another program than it was begun with
    starts: int = 0
    halt: str
    halt_since_ms: int = 0
    silent_ms: int = 0
    refused: dict[str, str] = {}  # by the machine: what, and why
    # how the kernel has it: of one that runs
    cores: list[int] | UnsetType = UNSET
    scheduling: str | UnsetType = UNSET
    locked_bytes: int | UnsetType = UNSET
    core_dump_bytes: int | UnsetType = UNSET

    @property
    def has_ended(self) -> bool:
        return self.pid is None and not self.spawning


class SupervisorStatus(Status, frozen=True, kw_only=True):
    kind: ClassVar = "supervisor"

    pid: int = 0
    program: str = ""  # its own, and of all that it forks; empty: of before it was told
    volume_level: int = NOT_TOLD
    machine: ExaminedMachine | None = None  # None: compared with nothing
    children: list[ChildStatus]
