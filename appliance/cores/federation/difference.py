"""Where two logs first differ, found by summaries of ever fewer places."""

from collections.abc import Sequence

from appliance.formats.causal.link import mark_positions


class DifferenceSearch:
    """Ask both for `span`, tell `take` their marks, until `span` is one place: the first at
    which they differ. An invariant of each step: what lies before it is equal.

    `count` is the number of entries of the longer log; 1 in 16 of the places is left by each step.
    """

    def __init__(self, count: int) -> None:
        assert count > 0
        self.span = (0, count)

    @property
    def found(self) -> bool:
        """Whether one place is left."""
        return self.span[1] - self.span[0] == 1

    def take(self, own: Sequence[str], other: Sequence[str]) -> bool:
        """Marks of `span` in both logs, each as far as the log goes. False: they do not differ
        there, or no more, as logs grow while they are asked for."""
        first, last = self.span
        before = first
        for number, position in enumerate(mark_positions(first, last)):
            mine, theirs = (marks[number] if number < len(marks) else "" for marks in (own, other))
            if mine != theirs:
                self.span = (before, position)
                return True
            before = position
        return False
