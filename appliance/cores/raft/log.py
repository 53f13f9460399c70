"""The entries behind the last compaction, and every Configuration that may still count."""

from collections.abc import Sequence

from appliance.cores.raft.effects import Saved, Snapshot
from appliance.formats.raft_legacy.configuration import Configuration, decode_configuration
from appliance.formats.raft_legacy.frame import CONFIGURATION, Entry


class Log:
    """Invariants: before <= snapshot index <= commit; entries lie at before + 1 .. last, no gaps.

        1 ........ before | before + 1 ............ last
          compacted       |  entries[0] ...     entries[-1]

    `configurations` holds (index, Configuration): the newest one at or before the snapshot, or the
    configured one with index 0, then each one in the entries behind, rising.
    """

    __slots__ = ("before", "before_term", "entries", "snapshot", "configurations")

    def __init__(self, saved: Saved, configured: Configuration) -> None:
        self.before, self.before_term = saved.before, saved.before_term
        self.entries = list(saved.entries)
        self.snapshot = saved.snapshot
        base = (0, configured)
        if self.snapshot is not None:
            base = (self.snapshot.index, self.snapshot.configuration)
        self.configurations: list[tuple[int, Configuration]] = [base]
        for index, entry in enumerate(self.entries, self.before + 1):
            if index > base[0]:
                self._note(index, entry)

    @property
    def last(self) -> int:
        """Index of the last entry, or of what was compacted; 0 for an empty log."""
        return self.before + len(self.entries)

    @property
    def free(self) -> int:
        return self.last + 1

    @property
    def last_term(self) -> int:
        return self.entries[-1].term if self.entries else self.before_term

    @property
    def snapshot_index(self) -> int:
        return 0 if self.snapshot is None else self.snapshot.index

    def term_of(self, index: int) -> int | None:
        """The term of an entry, also of the last compacted one; None where we do not know."""
        if index == self.before:
            return self.before_term
        if self.before < index <= self.last:
            return self.entries[index - self.before - 1].term
        return None

    def first_of_term(self, index: int) -> int:
        """The first index we hold of the term of the entry at `index`."""
        term = self.term_of(index)
        while index > self.before + 1 and self.term_of(index - 1) == term:
            index -= 1
        return index

    def take(self, first: int, last: int) -> tuple[Entry, ...]:
        """Entries `first` .. `last`, both included."""
        assert self.before < first
        assert last <= self.last
        return tuple(self.entries[first - self.before - 1 : last - self.before])

    def some(self, first: int, last: int, *, count: int, size: int) -> tuple[Entry, ...]:
        """Entries from `first` on, at most up to `last`, within both bounds but at least one."""
        last = min(last, first + count - 1)
        found: list[Entry] = []
        for index in range(first, last + 1):
            entry = self.entries[index - self.before - 1]
            size -= len(entry.value)
            if found and size < 0:
                break
            found.append(entry)
        return tuple(found)

    def append(self, entries: Sequence[Entry]) -> None:
        for index, entry in enumerate(entries, self.free):
            self._note(index, entry)
        self.entries += entries

    def _note(self, index: int, entry: Entry) -> None:
        if entry.type == CONFIGURATION:
            self.configurations.append((index, decode_configuration(entry.value)))

    def cut(self, index: int) -> None:
        """Entries from `index` on are gone; a Configuration there gives way to the one before."""
        assert self.before < index <= self.last
        del self.entries[index - self.before - 1 :]
        while self.configurations[-1][0] >= index:
            self.configurations.pop()
        assert self.configurations

    def configuration_at(self, index: int) -> tuple[int, Configuration]:
        """The newest Configuration at or before `index`."""
        return next(pair for pair in reversed(self.configurations) if pair[0] <= index)

    def compact(self, snapshot: Snapshot, before: int) -> None:
        """Take over a snapshot of entries that we hold, and forget those up to `before`."""
        term = self.term_of(before)
        assert term is not None
        assert before <= snapshot.index <= self.last
        del self.entries[: before - self.before]
        self.before, self.before_term = before, term
        self._rebase(snapshot)

    def replace(self, snapshot: Snapshot) -> None:
        """Take over a leader's snapshot. What lies behind stays if its last entry is ours too."""
        if self.term_of(snapshot.index) == snapshot.term and snapshot.index <= self.last:
            del self.entries[: snapshot.index - self.before]
        else:
            self.entries = []
            self.configurations = [p for p in self.configurations if p[0] <= snapshot.index]
        self.before, self.before_term = snapshot.index, snapshot.term
        self._rebase(snapshot)

    def _rebase(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        behind = [pair for pair in self.configurations if pair[0] > snapshot.index]
        self.configurations = [(snapshot.index, snapshot.configuration), *behind]
