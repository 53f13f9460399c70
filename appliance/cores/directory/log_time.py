"""The time of a farm's log: how long ago an entry was appended, as far as the log itself tells.

A leader of ours puts the time of its clock before each document. Clocks of two leaders may be hours
apart, so only the step from one such time to the next counts, bounded on both sides: time never
falls, and one step is a period at most. Where a leader puts none, as JRaft, the dates of a node say
how long after its last document it posted; bounded in the same way.

    1: 09:59:58 │ status of 2 │ 1: 10:00:31 │ status of 3 │ 3: 08:12:07 │ status of 1 │ ...
              └────── 33 s ──────┘       └── another clock: 0 s ──┘
"""

from dataclasses import dataclass
from typing import Any

from appliance.cores.directory.document import is_date, poster_of

APPENDED = "appended"  # ms since 1970 by the clock of who led


@dataclass(slots=True)
class LogTime:
    """`told_ms`: the newest time that a leader put into the log, at `told_index`; 0: none."""

    now_ms: int = 0
    told_ms: int = 0
    told_index: int = 0

    def on_told(self, index: int, told_ms: int, step_ms_max: int) -> None:
        if self.told_index:
            self.now_ms += min(max(0, told_ms - self.told_ms), step_ms_max)
        self.told_ms, self.told_index = told_ms, index

    def is_told(self, index: int) -> bool:
        """Whether a leader told the time right before the entry at `index`."""
        return self.told_index == index - 1

    def on_dates(self, before_ms: int, later_ms: int, step_ms_max: int) -> None:
        """A node has posted `later_ms` by its clock after a document that was appended at
        `before_ms` of this one."""
        self.now_ms = max(self.now_ms, min(before_ms + later_ms, self.now_ms + step_ms_max))

    def row(self) -> list[int]:
        return [self.now_ms, self.told_ms, self.told_index]


def append_time(cluster: str, leader: int, told_ms: int) -> dict[str, Any]:
    """What a leader puts before a document: no document itself, it has no date."""
    return {"cluster": cluster, "id": leader, APPENDED: told_ms}


def append_time_of(document: dict[str, Any]) -> int | None:
    """The time in such a value; None: it is another one."""
    if set(document) != {"cluster", "id", APPENDED} or poster_of(document) is None:
        return None
    found = document[APPENDED]
    return found if is_date(found) else None
