"""The tree of links: to which node of the site a node keeps its stream.

A node dials nodes with a smaller index only, one at a time, so there is never a ring. It begins
with the smallest of those that the farm's directory lists; those that it does not list come behind
them, and while there is no directory all are alike. While a stream does not open, or is gone, for
REHANG_MS it goes on to the next one, past those that do not answer either, and from the last back
to the first. Node 0 dials nobody; when it is away the smallest node that lives becomes the root, as
all smaller ones are in vain.

    listed 1 2    own 3:   1 → 2 → 0 → 1 → …      0 is in the site and not in the directory
"""

from collections.abc import Iterable

REHANG_MS = 1_000
PASS_MS = 750  # for each further one of the same round
ROUND_MS = 3_000  # for each one once none of a round has answered: they may be slow


class Uplink:
    """`poll` regularly; `target` is the node to dial, None: nobody is smaller."""

    def __init__(self, own: int, indexes: Iterable[int], now_ms: int) -> None:
        """`indexes`: the nodes of the site that have objects."""
        self._site = sorted(index for index in indexes if index < own)
        self._candidates = self._site
        self._position = 0
        self._passed = 0  # candidates given up since a stream was open
        self._since_ms = now_ms  # since when there is no open stream

    @property
    def target(self) -> int | None:
        return self._candidates[self._position] if self._candidates else None

    def learn(self, listed: frozenset[int], now_ms: int) -> bool:
        """A newer directory lists these nodes: whether the target has changed.

        An open stream to a node that is listed stays: any smaller node will do.
        """
        old = self.target
        first = [index for index in self._site if index in listed]
        self._candidates = first + [index for index in self._site if index not in listed]
        if old is None:
            return False
        stays = old in listed or not first
        self._position = self._candidates.index(old) if stays else 0
        if self.target == old:
            return False
        self._passed, self._since_ms = 0, now_ms
        return True

    def poll(self, now_ms: int, *, is_open: bool) -> bool:
        """Whether the target has changed."""
        if is_open or len(self._candidates) < 2:
            self._since_ms, self._passed = now_ms, 0
            return False
        if self._passed == 0:
            patience_ms = REHANG_MS
        else:
            patience_ms = PASS_MS if self._passed < len(self._candidates) else ROUND_MS
        if now_ms - self._since_ms < patience_ms:
            return False
        self._position = (self._position + 1) % len(self._candidates)
        self._passed += 1
        self._since_ms = now_ms
        return True
