"""The shard's history, once: every commit of every replica must be a part of it."""

from typing import NamedTuple

from appliance.formats import envelope
from appliance.formats.envelope import Header
from appliance.simulation.failure import name_of, violated

NAME = "log"


class Entry(NamedTuple):
    """One committed prepare; views with their epochs, as one number.

    `observed_view`: of the replica that was first seen to commit it.
    """

    digest: bytes
    view: int
    timestamp: int
    observed_view: int


class CommittedLog:
    """Prepares by op, from the root. Grows by one at the first commit of an op anywhere."""

    def __init__(self, cluster: bytes, shard: int) -> None:
        self.entries = [Entry(envelope.root(cluster, shard).digest, 0, 0, 0)]
        self.replies: dict[int, bytes] = {}  # op -> digest of its reply

    @property
    def op(self) -> int:
        """The highest op that anybody committed."""
        return len(self.entries) - 1

    def on_commit(self, replica: int, view: int, header: Header) -> bool:
        """`replica`, in `view`, has applied `header`. True when it is the first to do so."""
        op = header.op
        if op <= self.op:
            if self.entries[op].digest != header.digest:
                violated(NAME, f"replica {replica} committed another prepare at op {op}: {header}")
            return False
        if op != self.op + 1:
            violated(NAME, f"replica {replica} committed op {op} after {self.op}")
        last = self.entries[-1]
        if header.parent != last.digest:
            violated(
                NAME, f"replica {replica} committed {header}, which does not follow op {op - 1}"
            )
        if header.viewstamp < last.view:
            violated(
                NAME,
                f"op {op} is of {name_of(header.viewstamp)}, the op before of {name_of(last.view)}",
            )
        if header.timestamp <= last.timestamp:
            violated(
                NAME, f"op {op} has timestamp {header.timestamp}, the op before {last.timestamp}"
            )
        self.entries.append(Entry(header.digest, header.viewstamp, header.timestamp, view))
        return True

    def on_reply(self, replica: int, header: Header) -> None:
        """`replica` sends the reply of op `header.op`: committed, and the same from everybody."""
        if header.op > self.op:
            violated(NAME, f"replica {replica} answers op {header.op}, which nobody has committed")
        known = self.replies.setdefault(header.op, header.digest)
        if known != header.digest:
            violated(
                NAME, f"replica {replica} answers op {header.op} otherwise than before: {header}"
            )

    def on_start_view(self, replica: int, header: Header, headers: list[Header]) -> None:
        """A primary announces the log of `header.view`: what was committed before must be in it."""
        op = self.op
        while op > header.op and self.entries[op].observed_view >= header.viewstamp:
            op -= 1
        if op > header.op:
            violated(
                NAME,
                f"replica {replica} starts {name_of(header.viewstamp)} with head "
                f"{header.op}, but op {op} was committed in "
                f"{name_of(self.entries[op].observed_view)}",
            )
        for known in headers:
            if known.op > self.op or self.entries[known.op].observed_view >= header.viewstamp:
                continue
            if known.digest != self.entries[known.op].digest:
                violated(
                    NAME,
                    f"replica {replica} starts {name_of(header.viewstamp)} with "
                    f"another prepare at op {known.op}: {known}",
                )
