"""The tree of links: to which node of the site a node keeps its stream.

A node dials nodes with a smaller index only, one at a time, so there is never a ring. It begins
with the smallest; while a stream does not open, or is gone, for REHANG_MS it goes on to the next
one, and from the last back to the first. Node 0 dials nobody; when it is away the smallest node
that lives becomes the root, as all smaller ones are in vain.
"""

REHANG_MS = 2_000


class Uplink:
    """`look` regularly; `target` is the node to dial, None: nobody is smaller."""

    def __init__(self, own: int, indexes: list[int], now_ms: int) -> None:
        self._candidates = sorted(index for index in indexes if index < own)
        self._position = 0
        self._since_ms = now_ms  # since when there is no open stream

    @property
    def target(self) -> int | None:
        return self._candidates[self._position] if self._candidates else None

    def look(self, now_ms: int, *, is_open: bool) -> bool:
        """Whether the target has changed."""
        if is_open or len(self._candidates) < 2:
            self._since_ms = now_ms
            return False
        if now_ms - self._since_ms < REHANG_MS:
            return False
        self._position = (self._position + 1) % len(self._candidates)
        self._since_ms = now_ms
        return True
