"""What must hold in every world: Raft's five properties, and that no yes is ever lost.

Figure 3 of the Raft paper: election safety, leader append-only, log matching, leader completeness,
state machine safety.
"""

import hashlib
from collections.abc import Callable

from appliance.cores.raft.effects import AppendLog, Write
from appliance.cores.raft.effects import CutLog as Cut
from appliance.formats.raft_legacy.frame import Entry
from appliance.simulation.failure import require, violated


def link_of(before: bytes, index: int, entry: Entry) -> bytes:
    """The chain over all entries up to this one."""
    head = index.to_bytes(8, "big") + entry.term.to_bytes(8, "big") + bytes([entry.type])
    return hashlib.blake2b(before + head + entry.value, digest_size=16).digest()


class Checkers:
    """Hears of every write, leader, commit and yes of every member."""

    def __init__(self) -> None:
        self.leaders: dict[int, int] = {}  # term -> who led
        self.entries: dict[tuple[int, int], tuple[int, bytes]] = {}  # (index, term): past, value
        self.committed: list[Entry] = []
        self.committed_in: list[int] = []  # the term in which each was first committed
        self.chain: list[bytes] = [b""]  # after so many committed entries
        self.indexes: dict[bytes, int] = {}  # committed value -> index
        self.acknowledged: list[bytes] = []
        self.newest_yes = 0  # the highest index of a value that was answered yes
        self.pairs = 0

    def on_leader(
        self, member: int, term: int, last: int, term_of: Callable[[int], int | None]
    ) -> None:
        """`last`: of the log it was elected with. `term_of`: None for what it has compacted."""
        known = self.leaders.setdefault(term, member)
        require(
            known == member, "election safety", f"members {known} and {member} lead term {term}"
        )
        before = 0
        while before < len(self.committed) and self.committed_in[before] < term:
            before += 1
        if before:
            held, wanted = term_of(before), self.committed[before - 1].term
            require(
                last >= before and held in (None, wanted),
                "leader completeness",
                f"leader {member} of term {term} has term {held} at the committed index {before}",
            )

    def on_write(self, member: int, write: Write, leads: bool, term_before: int) -> None:
        """`term_before`: of the entry before the first one appended."""
        if isinstance(write, Cut):
            require(not leads, "leader append-only", f"leader {member} cuts at {write.index}")
        if not isinstance(write, AppendLog):
            return
        index = write.first
        for entry in write.entries:
            found = (term_before, entry.value)
            known = self.entries.setdefault((index, entry.term), found)
            if known != found:
                violated(
                    "log matching",
                    f"member {member} holds another entry or another past at index {index} of "
                    f"term {entry.term}",
                )
            term_before = entry.term
            index += 1

    def on_commit(self, member: int, term: int, first: int, entries: tuple[Entry, ...]) -> None:
        for index, entry in enumerate(entries, first):
            if index <= len(self.committed):
                require(
                    self.committed[index - 1] == entry,
                    "state machine safety",
                    f"member {member} commits another entry at index {index}",
                )
                continue
            require(
                index == len(self.committed) + 1,
                "state machine safety",
                f"member {member} commits index {index} before {len(self.committed) + 1}",
            )
            self.committed.append(entry)
            self.committed_in.append(term)
            self.chain.append(link_of(self.chain[-1], index, entry))
            self.indexes.setdefault(entry.value, index)

    def on_state(self, member: int, index: int, chain: bytes) -> None:
        """The state of a member's application after `index`, however it came there."""
        require(
            index < len(self.chain) and self.chain[index] == chain,
            "state machine safety",
            f"the application of member {member} differs at index {index}",
        )

    def on_yes(self, value: bytes) -> None:
        require(value in self.indexes, "yes", f"{value!r} was answered yes and is not committed")
        self.acknowledged.append(value)
        self.newest_yes = max(self.newest_yes, self.indexes[value])

    def on_read(self, member: int, known: int, index: int) -> None:
        """A read is answered from the state after `index`; asked after a yes to `known`."""
        require(
            index >= known,
            "linearizable reads",
            f"member {member} reads at index {index} what was answered yes at {known}",
        )
