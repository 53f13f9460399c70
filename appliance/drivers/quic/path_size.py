"""How large the datagrams on a path may be (RFC 8899): every path bears the smallest, larger sizes
are tried one after the other, each by a packet that carries nothing.

    1200 ──▶ the next size is tried ──▶ acknowledged: all packets may be as large; the next one
      ▲                            └──▶ lost, and lost again: the size stays as it is
      └──── a larger size, and several probes in a row unanswered: the path has changed
"""

from collections.abc import Sequence

SIZE_MIN = 1200  # bytes, that every path bears (RFC 9000, 14)
_TRIES = 2  # of a size
_SILENT_MAX = 2  # probe timeouts in a row, by which a path bears its size no more


class PathSize:
    """Of one path. `size` is what its datagrams may have, in bytes."""

    __slots__ = ("size", "_sizes", "_largest", "_tried", "_lost")

    def __init__(self, sizes: Sequence[int]) -> None:
        """`sizes` to try, rising; none: the path keeps the smallest."""
        assert list(sizes) == sorted(sizes) and all(size > SIZE_MIN for size in sizes)
        self.size = SIZE_MIN
        self._sizes = sizes
        self._largest = sizes[-1] if sizes else SIZE_MIN  # to be tried on this path
        self._tried = 0  # a try of this size is under way
        self._lost = 0  # tries of the next size

    def grant(self, largest: int) -> None:
        """The other side takes no larger ones."""
        self._largest = min(self._largest, max(largest, SIZE_MIN))

    def next(self) -> int:
        """The size to try now, 0 for none; it counts as tried."""
        if self._tried or self.size >= self._largest:
            return 0
        wanted = next((size for size in self._sizes if size > self.size), self._largest)
        self._tried = min(wanted, self._largest)
        return self._tried

    def on_acked(self, size: int) -> None:
        """One of this size has arrived."""
        if size == self._tried:
            self.size, self._tried, self._lost = size, 0, 0

    def on_lost(self, size: int) -> None:
        """One of this size has not."""
        if size != self._tried:
            return
        self._tried = 0
        self._lost += 1
        if self._lost >= _TRIES:
            self._largest = self.size

    def on_silence(self, timeouts: int) -> bool:
        """So many probe timeouts in a row: whether the size is the smallest again, for good."""
        if timeouts < _SILENT_MAX or self.size == SIZE_MIN:
            return False
        self.size = self._largest = SIZE_MIN
        self._tried = 0
        return True
