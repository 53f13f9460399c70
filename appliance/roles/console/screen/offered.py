"""What may be done in a view of the screen, and which line of it is marked."""

from collections.abc import Callable
from typing import Any

from appliance.cores.console.console import Console
from appliance.cores.console.model import SiteSnapshot

Find = Callable[[Console], list[dict[str, Any]]]


class Offered:
    """`find` gives what is offered, as `act_offers` has it; None: nothing is.

    Invariant: `row` is a place in what was offered last, 0 where that is nothing.
    """

    def __init__(self, find: Find | None = None) -> None:
        self._find = find
        self._seen: SiteSnapshot | None = None
        self._offers: list[dict[str, Any]] = []
        self._marked: object = None
        self.row = 0

    def now(self, console: Console) -> list[dict[str, Any]]:
        """As of its last poll. What is marked stays so where its line is another one then: who
        presses a key means what he saw."""
        if self._find is not None and self._seen is not console.seen():
            self._seen, self._offers = console.seen(), self._find(console)
            known = list(map(_identity, self._offers))
            self.mark(known.index(self._marked) if self._marked in known else self.row)
        return self._offers

    def mark(self, row: int) -> None:
        """The line there, or the nearest that there is."""
        self.row = max(0, min(row, len(self._offers) - 1))
        self._marked = _identity(self._offers[self.row]) if self._offers else None


def _identity(offer: dict[str, Any]) -> object:
    """What it is of, however things are."""
    return offer["act"], offer["about"], offer.get("written")
