"""How long durable writes of each replica usually take: the median of a day, a figure a minute."""

from collections import deque
from collections.abc import Iterable
from statistics import median_low
from typing import Any

from appliance.cores.console.alarms import P99_WRITES_MIN
from appliance.cores.console.model import Answers, SiteSnapshot, told
from appliance.formats.status.console import ConsoleStatus

MINUTE_MS = 60_000
DAY_MINUTES = 1440
KNOWN_MINUTES_MIN = 60  # of fewer, nothing is usual yet


def usual_told(answers: Answers) -> dict[tuple[int, int], int]:
    """What consoles of this machine know to be usual, as `Usual.medians` has it: who has just begun
    to look, as a verb has, knows nothing of a day."""
    found: dict[tuple[int, int], int] = {}
    for _, status in told(answers, ConsoleStatus):
        for shard, node, usual_us in status.usual_us:
            found.setdefault((shard, node), usual_us)
    return found


class Usual:
    """Figures are medians of durable writes, in microseconds, by shard and node."""

    def __init__(self) -> None:
        self._minute = -1  # since the epoch, of the newest figures
        self._figures: dict[tuple[int, int], deque[int]] = {}
        self.medians: dict[tuple[int, int], int] = {}

    def on_poll(self, snapshot: SiteSnapshot) -> None:
        minute = snapshot.wall_ms // MINUTE_MS
        if minute == self._minute:
            return
        self._minute = minute
        for shard in snapshot.shards:
            for member in shard.members:
                own = member.own
                if own is not None and own.writes.count >= P99_WRITES_MIN:
                    at = (shard.number, member.node)
                    figures = self._figures.setdefault(at, deque(maxlen=DAY_MINUTES))
                    figures.append(own.writes.p50_us)
        self._count()

    def _count(self) -> None:
        self.medians = {
            at: median_low(figures)
            for at, figures in self._figures.items()
            if len(figures) >= KNOWN_MINUTES_MIN
        }

    def kept(self) -> list[list[Any]]:
        return [[shard, node, list(own)] for (shard, node), own in self._figures.items()]

    def restore(self, kept: Iterable[list[Any]]) -> None:
        """As `kept` gave it; TypeError or ValueError: it is not that, and nothing is changed."""
        found: dict[tuple[int, int], deque[int]] = {}
        for shard, node, figures in kept:
            if any(type(number) is not int for number in (shard, node, *figures)):
                raise TypeError("no figures")
            found[shard, node] = deque(figures, maxlen=DAY_MINUTES)
        self._figures = found
        self._count()
