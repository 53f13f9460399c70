"""The life of alarms: raised, perhaps seen by somebody, cleared by themselves; a day of them.

holds ──see──▶ holds, seen by who
  └───────┬───────┘
   no look finds it ──▶ over, for a day in the list
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from appliance.cores.console.alarm import Alarm

DAY_MS = 86_400_000
OVER_MAX = 500  # that are remembered; beyond, the oldest are forgotten
TEXT_MAX = 300  # characters of each text


@dataclass(frozen=True, slots=True)
class Raised:
    """Times since the epoch; 0: it holds, nobody has seen it."""

    name: str
    severity: str
    subject: str
    text: str
    raised_ms: int
    cleared_ms: int = 0
    seen_by: str = ""
    seen_ms: int = 0

    def plain(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


Key = tuple[str, str]  # an alarm's name and subject


def not_held(name: str, subject: str) -> str:
    """Why it cannot be seen any more."""
    return f"no alarm {name} of {subject} holds: it has cleared itself"


class AlarmLife:
    """Invariants: what holds is found under its name and subject, once; what is over is in the
    order in which it ended, and ended within a day of the newest look."""

    def __init__(self) -> None:
        self.holds: dict[Key, Raised] = {}
        self._over: deque[Raised] = deque(maxlen=OVER_MAX)

    def on_poll(self, alarms: Iterable[Alarm], *, now_ms: int, wall_ms: int) -> None:
        found = {(alarm.name, alarm.subject): alarm for alarm in alarms}
        for key in [key for key in self.holds if key not in found]:
            self._over.append(replace(self.holds.pop(key), cleared_ms=wall_ms))
        for key, alarm in found.items():
            before = self.holds.get(key)
            if before is None:
                raised_ms = wall_ms - (now_ms - alarm.since_ms)
                before = Raised(alarm.name, alarm.severity, alarm.subject, "", raised_ms)
            words = alarm.text[:TEXT_MAX]
            self.holds[key] = replace(before, severity=alarm.severity, text=words)
        while self._over and self._over[0].cleared_ms < wall_ms - DAY_MS:
            self._over.popleft()

    def see(self, name: str, subject: str, who: str, wall_ms: int) -> bool:
        """Somebody has seen it, the first counts; False: no such alarm holds."""
        raised = self.holds.get((name, subject))
        if raised is not None and not raised.seen_by:
            self.holds[name, subject] = replace(raised, seen_by=who, seen_ms=wall_ms)
        return raised is not None

    def over(self) -> list[Raised]:
        """The newest first."""
        return list(reversed(self._over))

    def rows(self) -> list[Raised]:
        """What holds, then what is over, the newest first."""
        holds = sorted(self.holds.values(), key=lambda each: -each.raised_ms)
        return [*holds, *self.over()]

    def kept(self) -> list[dict[str, Any]]:
        return [row.plain() for row in self.rows()]

    def restore(self, kept: Iterable[dict[str, Any]]) -> None:
        """As `kept` gave it; TypeError or ValueError: it is not that, and nothing is changed. What
        held is over at the next look that does not find it."""
        rows = [Raised(**row) for row in kept]
        for row in rows:
            texts = (row.name, row.severity, row.subject, row.text, row.seen_by)
            times = (row.raised_ms, row.cleared_ms, row.seen_ms)
            if any(type(text) is not str for text in texts):
                raise TypeError("no text")
            if any(type(time) is not int for time in times):
                raise TypeError("no time")
        self.holds = {(row.name, row.subject): row for row in rows if not row.cleared_ms}
        over = [row for row in reversed(rows) if row.cleared_ms]
        self._over.extend(sorted(over, key=lambda row: row.cleared_ms))
