"""What all writers to one device have to know of each other before any of them confirms."""


class Failures:
    """Counts the writes and flushes of a volume that have failed, in whichever I/O thread.

    A device whose flush fails may have dropped what any thread had written to it. The next flush,
    of any thread, then succeeds and proves nothing. So after the first failure nothing that was
    written before is ever confirmed; as the process ends, nothing at all is.
    """

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0

    def add(self) -> None:
        """A write or a flush has failed."""
        self.count += 1

    def may_confirm(self) -> bool:
        """Whether a flush that succeeded proves that what was written before it is durable."""
        return self.count == 0
