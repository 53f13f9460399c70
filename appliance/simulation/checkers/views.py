"""A view has one log. Whoever votes with it lists no other prepare than anybody else does, ends no
lower than the view began, and leaves no blank where its start named an op.
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

    def on_start_view(self, replica: int, header: Header, headers: list[Header]) -> None:
        """A primary tells the log of its view: as the view begins, or later, when it has grown."""
        log = self._log(header.viewstamp)
        self._agree(replica, header.viewstamp, log, headers)
        if log.head < 0 and headers[0].viewstamp < header.viewstamp:
            log.head, log.named = headers[0].op, {known.op for known in headers}

    def on_do_view_change(self, replica: int, header: Header, headers: list[Header]) -> None:
        """A vote with its list, blanks included, highest op first."""
        log_view = header.epoch << 32 | header.aux
        log = self._log(log_view)
        self._agree(replica, log_view, log, headers)
        if header.op < log.head:
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
