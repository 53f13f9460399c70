"""How far down from the head the headers of a log are known to name each other."""

from appliance.cores.vsr.journal import Journal
from appliance.formats.envelope import Header


class Chain:
    """What was found last: headers `low`..head form an unbroken chain. It holds as long as the head
    is the same one and the journal has lost no header.
    """

    __slots__ = ("low", "head", "removals")

    def __init__(self) -> None:
        self.low = 0
        self.head = b""  # the head's digest for which that was found
        self.removals = 0  # and the journal's removals by then

    def reaches(self, op: int, head: Header, journal: Journal) -> bool:
        """Whether the headers op..head are all known and each names its predecessor."""
        if self.head != head.digest or self.removals != journal.removals:
            self.head = head.digest
            self.removals = journal.removals
            self.low = head.op
        assert self.low <= head.op
        low = max(self.low, head.op - journal.slot_count + 1)
        child = journal.at(low)
        assert child is not None
        while low > op:
            known = journal.at(low - 1)
            if known is None or known.digest != child.parent:
                break
            child = known
            low -= 1
        self.low = low
        return low <= op

    def holds(self, head: Header, journal: Journal) -> bool:
        """Whether what was found last is still so."""
        return self.head == head.digest and self.removals == journal.removals

    def extend(self, header: Header) -> None:
        """`header` is the successor of the head: if it names it, what was known stays known."""
        assert self.low < header.op
        if self.head == header.parent:
            self.head = header.digest

    def forget(self) -> None:
        """Another log is installed: nothing is known of it."""
        self.head = b""
