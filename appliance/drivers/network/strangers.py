"""Visitors in one stage of their coming in: by address, and within it by when they came there."""

from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar


class Addressed(Protocol):
    """Who comes from an address."""

    address: str


Comer = TypeVar("Comer", bound=Addressed)


class Stage(Generic[Comer]):
    """Invariant: `count` are in it, each under its address, with the time in s when it was added.
    Addresses stand in the order in which somebody was added last."""

    def __init__(self) -> None:
        self._rows: dict[str, dict[Comer, float]] = {}
        self.count = 0

    def add(self, comer: Comer, now_s: float) -> None:
        """The newest of its address."""
        row = self._rows.pop(comer.address, {})
        assert comer not in row
        row[comer] = now_s
        self._rows[comer.address] = row
        self.count += 1

    def remove(self, comer: Comer) -> bool:
        """Whether it was here."""
        row = self._rows.get(comer.address, {})
        if row.pop(comer, None) is None:
            return False
        self.count -= 1
        if not row:
            del self._rows[comer.address]
        return True

    def of(self, address: str) -> int:
        """How many are of this address."""
        return len(self._rows.get(address, ()))

    def addresses(self) -> Iterator[str]:
        """Of all that are here."""
        return iter(self._rows)

    def crowd(self) -> str:
        """The address of most of them."""
        return max(self._rows, key=self.of)

    def oldest(self, address: str) -> tuple[Comer, float]:
        """Of this address, and since when."""
        return next(iter(self._rows[address].items()))

    def newest(self, address: str) -> Comer:
        """Of this address."""
        return next(reversed(self._rows[address]))
