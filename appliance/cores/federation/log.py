"""The log of a channel: ids in order, the newest in memory, all of them in the store's index.

Order is (lamport timestamp, bytes of the id); text compares by code points, which is the order of
its bytes in UTF-8. Blocks keep an insertion in the middle cheap; appending is the usual case.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator
from dataclasses import dataclass

_BLOCK = 1000  # entries; a full block is split


@dataclass(slots=True, order=True)
class Entry:
    """One place of the log."""

    lamport: int
    message_id: str
    sender: str
    hint: bytes | None = None

    @property
    def order_key(self) -> tuple[int, str]:
        return self.lamport, self.message_id


class ChannelLog:
    """Entries in memory, at most `window`; older ones are `below`, counted only.

    Invariants: blocks are sorted and not empty; `entries` has exactly those of the blocks;
    every entry below stands before every entry of the blocks, or came late.
    """

    __slots__ = ("window", "below", "entries", "_blocks", "_firsts")

    def __init__(self, window: int) -> None:
        assert window > 0
        self.window = window
        self.below = 0
        self.entries: dict[str, Entry] = {}
        self._blocks: list[list[tuple[int, str]]] = []
        self._firsts: list[tuple[int, str]] = []

    def __contains__(self, message_id: str) -> bool:
        return message_id in self.entries

    def __len__(self) -> int:
        """Entries of the whole log."""
        return self.below + len(self.entries)

    def insert(self, entry: Entry) -> int | None:
        """Position in the whole log, from 0; None for one before those in memory."""
        assert entry.message_id not in self.entries
        order_key = entry.order_key
        if self.below and self._firsts and order_key < self._firsts[0]:
            self.below += 1
            return None
        self.entries[entry.message_id] = entry
        position = self.below + self._insert(order_key)
        if len(self.entries) > self.window:
            self._shrink()
        return position

    def _insert(self, order_key: tuple[int, str]) -> int:
        if not self._blocks:
            self._blocks.append([order_key])
            self._firsts.append(order_key)
            return 0
        last = self._blocks[-1]
        if order_key > last[-1]:  # the usual case
            last.append(order_key)
            number, index = len(self._blocks) - 1, len(last) - 1
        else:
            number = max(0, bisect_left(self._firsts, order_key) - 1)
            block = self._blocks[number]
            index = bisect_left(block, order_key)
            insort(block, order_key)
            self._firsts[number] = block[0]
        position = sum(map(len, self._blocks[:number])) + index
        block = self._blocks[number]
        if len(block) > 2 * _BLOCK:
            self._blocks[number : number + 1] = [block[:_BLOCK], block[_BLOCK:]]
            self._firsts[number : number + 1] = [block[0], block[_BLOCK]]
        return position

    def _shrink(self) -> None:
        """The oldest block leaves memory, or as much of it as there is too much."""
        block = self._blocks[0]
        count = min(len(block), max(1, min(_BLOCK, self.window // 4)))
        if count == len(block):
            count -= 1 if len(self._blocks) == 1 else 0
        for _, message_id in block[:count]:
            del self.entries[message_id]
        self.below += count
        del block[:count]
        if block:
            self._firsts[0] = block[0]
        else:
            del self._blocks[0], self._firsts[0]

    def tail(self, count: int) -> list[Entry]:
        """The last `count` entries, oldest first."""
        found: list[str] = []
        for block in reversed(self._blocks):
            need = count - len(found)
            if need <= 0:
                break
            found[:0] = [message_id for _, message_id in block[-need:]]
        return [self.entries[message_id] for message_id in found]

    def order_keys(self) -> Iterator[tuple[int, str]]:
        """(lamport, id) of those in memory, in order."""
        for block in self._blocks:
            yield from block

    def newest(self) -> Entry | None:
        """The last of the log."""
        return self.entries[self._blocks[-1][-1][1]] if self._blocks else None

    def check(self) -> None:
        """Assert what the class promises."""
        listed = list(self.order_keys())
        assert listed == sorted(listed)
        assert len(listed) == len(set(listed)) == len(self.entries)
        assert self._firsts == [block[0] for block in self._blocks]
        assert all(
            self.entries[message_id].order_key == (at, message_id) for at, message_id in listed
        )
        assert len(self.entries) <= self.window
