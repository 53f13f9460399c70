"""Who does a duty that one node has to do: the best recent status, held with steadiness.

Everything is an integer and comes from the log, so all members choose alike without talking.
"""

from dataclasses import dataclass, field
from typing import Any

from appliance.cores.directory.status import Status

AHEAD_POSTS = 5  # of another one in a row, until it replaces a holder that is still fit
Score = tuple[int, int, int, int, int]


def score_of(status: Status) -> Score:
    """Larger is better: healthy endpoints, hours up (24 at most), free bandwidth in eighths, a
    quick loop in steps of 50 ms, and the smaller id."""
    return (
        sum(1 for endpoint in status.endpoints if not endpoint.blacklisted),
        status.uptime_hours,
        status.free_eighths,
        -status.lag_steps,
        -status.id,
    )


@dataclass(slots=True)
class Choice:
    """`holder`: a node's id, 0 for nobody; `ahead`: posts in a row with a better score."""

    holder: int = 0
    ahead: dict[int, int] = field(default_factory=dict)

    def decide(self, poster: int, scores: dict[int, Score]) -> None:
        """`poster` has just posted; `scores` has every candidate."""
        if self.holder not in scores:
            self.holder = max(scores, key=lambda node: scores[node]) if scores else 0
            self.ahead.clear()
            return
        if poster == self.holder:
            for other in [o for o in self.ahead if not self._is_ahead(o, scores)]:
                del self.ahead[other]
        elif self._is_ahead(poster, scores):
            self.ahead[poster] = self.ahead.get(poster, 0) + 1
            if self.ahead[poster] >= AHEAD_POSTS:
                self.holder = poster
                self.ahead.clear()
        else:
            self.ahead.pop(poster, None)

    def _is_ahead(self, node: int, scores: dict[int, Score]) -> bool:
        return node in scores and scores[node] > scores[self.holder]

    def row(self) -> list[Any]:
        return [self.holder, sorted(self.ahead.items())]

    @staticmethod
    def of_row(row: list[Any]) -> "Choice":
        return Choice(row[0], dict(row[1]))
