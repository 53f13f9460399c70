"""The console of a node: what it found wrong, and who looks."""

from typing import ClassVar

from appliance.formats.status.status import Status


class ConsoleStatus(Status, frozen=True, kw_only=True):
    """`since`: of each alarm its name, its subject, and since when it holds, in milliseconds of the
    machine's clock that only goes forward."""

    kind: ClassVar = "console"

    alarms: dict[str, int] = {}  # that are raised, by name
    streams: int = 0  # pages that are told each second
    since: list[tuple[str, str, int]]
    connection_events: dict[str, int] = {}
