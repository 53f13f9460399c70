"""A view has one log. Whoever votes with it lists no other prepare than anybody else does, ends no
lower than the view began, and leaves no blank where its start named an op.

One kind of vote may end lower: that of a volume which was made anew, before it has taken a place in
any log. View 0 of a later epoch begins behind all of the epoch before, and such a volume votes as
of view 0 and op 0: all that the lost one acknowledged lies below what was committed before the new
one was made. Whoever has said that it holds anything, and votes so later, has forgotten it.
"""

from appliance.formats.envelope import OPERATION_RESERVED, Header
from appliance.simulation.failure import name_of, violated

NAME = "views"
VIEWS_KEPT = 64  # older ones are history


class ViewLog:
    """What was said of one view's log."""

    __slots__ = ("head", "named", "digests")

    def __init__(self) -> None:
        self.head = -1  # at its start; -1: it has not started
        self.named: set[int] = set()  # ops that its start named
        self.digests: dict[int, bytes] = {}  # of ops that anybody listed


class Views:
    """The logs of the newest views, by epoch and view as one number."""

    def __init__(self) -> None:
        self._logs: dict[int, ViewLog] = {}
        self._new: set[int] = set()  # replicas on a volume that is part of no log yet

    def on_format(self, replica: int) -> None:
        """A volume was made."""
        self._new.add(replica)

    def on_prepare_ok(self, replica: int) -> None:
        """A replica says that it holds an op."""
        self._new.discard(replica)

    def on_start_view(self, replica: int, header: Header, headers: list[Header]) -> None:
        """A primary tells the log of its view: as the view begins, or later, when it has grown."""
        self._new.discard(replica)
        log = self._log(header.viewstamp)
        self._agree(replica, header.viewstamp, log, headers)
        if log.head < 0 and headers[0].viewstamp < header.viewstamp:
            log.head, log.named = headers[0].op, {known.op for known in headers}

    def on_do_view_change(self, replica: int, header: Header, headers: list[Header]) -> None:
        """A vote with its list, blanks included, highest op first."""
        log_view = header.epoch << 32 | header.aux
        log = self._log(log_view)
        self._agree(replica, log_view, log, headers)
        if header.op or header.aux:
            self._new.discard(replica)
        if header.op < log.head and replica not in self._new:
            violated(
                NAME,
                f"replica {replica} votes with the log of {name_of(log_view)}, which "
                f"began with head {log.head}, and lists nothing above op {header.op}",
            )
        for listed in headers[:-1]:
            if listed.operation == OPERATION_RESERVED and listed.op in log.named:
                violated(
                    NAME,
                    f"replica {replica} votes with the log of {name_of(log_view)} and "
                    f"leaves op {listed.op} blank, which the start of that view named",
                )

    def _log(self, view: int) -> ViewLog:
        log = self._logs.setdefault(view, ViewLog())
        if len(self._logs) > VIEWS_KEPT:
            del self._logs[min(self._logs)]
        return log

    def _agree(self, replica: int, view: int, log: ViewLog, headers: list[Header]) -> None:
        for listed in headers:
            if listed.operation == OPERATION_RESERVED:
                continue
            known = log.digests.setdefault(listed.op, listed.digest)
            if known != listed.digest:
                violated(
                    NAME,
                    f"replica {replica} lists another op {listed.op} in the log of "
                    f"{name_of(view)} than was listed before: {listed}",
                )
