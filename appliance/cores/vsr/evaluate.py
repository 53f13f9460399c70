"""Which log a new view starts from: the rule alone, over the lists that describe each log.

Of the logs with the highest log_view every valid header is kept; an op is cut only when a nack
quorum proves that no replication quorum ever held it. What is unreadable neither nacks nor counts
as a copy.
"""

from enum import IntEnum
from typing import NamedTuple

from appliance.formats import envelope as env
from appliance.formats.envelope import Header


class DoViewChange(NamedTuple):
    """One replica's word on its log. `headers[i]` is of op `op - i`; bit i of nacks and presents
    belongs to it.
    """

    replica: int
    log_view: int
    op: int
    commit_min: int
    checkpoint: int
    headers: list[Header]
    presents: int
    nacks: int


class Verdict(IntEnum):
    """What the lists say."""

    AWAIT_QUORUM = 0
    AWAIT_MORE = 1  # a copy is missing that another replica may still have
    STUCK = 2  # everybody answered and a copy is missing: never guess
    START = 3
    CONTRADICTED = 4  # they cannot all be true: a volume has forgotten what it acknowledged


class Evaluation(NamedTuple):
    """`head` and `floor` (never cut) hold when the verdict is START; `reason` and `denied_by` (bit
    r: replica r certainly has forgotten) when it is CONTRADICTED.
    """

    verdict: Verdict
    head: int = 0
    floor: int = 0
    reason: str = ""
    denied_by: int = 0


def blank(header: Header) -> bool:
    """Whether this is a placeholder: the replica knows no header for the op."""
    return header.operation == env.OPERATION_RESERVED


def evaluate(
    dvcs: list[DoViewChange],
    *,
    replica_count: int,
    quorum_view_change: int,
    quorum_nack: int,
    pipeline_max: int,
    begun: int = 0,
) -> Evaluation:
    """Which log a new view starts from. Pure; run again on every do_view_change that arrives.

    `begun`: the op of the reconfiguration that began this epoch. It was committed by the quorums of
    the epoch before; a member that had no vote there may say truly that it never had it, which
    proves nothing. All that is later was prepared among the members of now.
    """
    assert 1 <= quorum_view_change <= replica_count
    assert 1 <= quorum_nack <= replica_count
    if len(dvcs) < quorum_view_change:
        return Evaluation(Verdict.AWAIT_QUORUM)
    log_view = max(d.log_view for d in dvcs)
    canonical = [d for d in dvcs if d.log_view == log_view]
    high = max(d.op for d in canonical)
    floor = max(
        max(d.commit_min, d.headers[-1].op, d.op - pipeline_max, d.headers[0].commit_num)
        for d in dvcs
    )
    reason = _contradiction(canonical, high, floor)
    if reason:
        return Evaluation(Verdict.CONTRADICTED, reason=reason)
    for op in range(floor, high + 1):
        chosen = canonical_header(canonical, op)
        copies = nacks = denied_by = 0
        for d in dvcs:
            if d.op < op:
                nacks += 1  # its head is lower: it never prepared this op
                denied_by |= 1 << d.replica
                continue
            i = d.op - op
            if i >= len(d.headers):
                continue
            header = d.headers[i]
            if d.nacks >> i & 1:
                nacks += 1
                denied_by |= 1 << d.replica
            elif not blank(header) and (chosen is None or header.digest != chosen.digest):
                assert d.log_view < log_view
                # holds another prepare here: it never prepared the chosen one
                nacks += 1
            if chosen is not None and d.presents >> i & 1 and header.digest == chosen.digest:
                copies += 1
        if nacks >= quorum_nack and op > begun:
            if op > floor:
                return Evaluation(Verdict.START, op - 1, floor)
            # It is committed, so one of them has forgotten it. Of two whatever is committed was
            # acknowledged by both. Of more nobody can tell who: it is not cut, whoever has it.
            if replica_count == 2:
                deniers = " and ".join(str(r) for r in range(2) if denied_by >> r & 1)
                reason = f"op {op} is committed, and replica {deniers} never had it"
                return Evaluation(Verdict.CONTRADICTED, reason=reason, denied_by=denied_by)
            if not copies and len(dvcs) == replica_count:
                reason = f"op {op} is committed, and nobody holds it"
                return Evaluation(Verdict.CONTRADICTED, reason=reason)
        if chosen is None or copies == 0:
            return Evaluation(Verdict.AWAIT_MORE if len(dvcs) < replica_count else Verdict.STUCK)
    assert floor <= high
    return Evaluation(Verdict.START, high, floor)


def _contradiction(canonical: list[DoViewChange], high: int, floor: int) -> str:
    """What the logs with the highest log_view cannot be, in words; empty: nothing."""
    assert all(d.log_view == canonical[0].log_view for d in canonical)
    log_view = canonical[0].log_view
    if high < floor:
        return f"op {floor} is committed, and the log of view {log_view} ends at op {high}"
    for op in range(floor, high + 1):
        known = {
            d.headers[d.op - op].digest
            for d in canonical
            if 0 <= d.op - op < len(d.headers) and not blank(d.headers[d.op - op])
        }
        if len(known) > 1:
            return f"two prepares of op {op} stand in logs of view {log_view}"
    return ""


def canonical_headers(canonical: list[DoViewChange], head: int, floor: int) -> list[Header]:
    """The headers of head..floor, descending; each is known to one of them."""
    assert floor <= head
    found = [canonical_header(canonical, op) for op in range(head, floor - 1, -1)]
    known = [header for header in found if header is not None]
    assert len(known) == len(found)
    return known


def canonical_header(canonical: list[DoViewChange], op: int) -> Header | None:
    """The header that the canonical logs hold at `op`; all that know one agree."""
    found: Header | None = None
    for d in canonical:
        i = d.op - op
        if 0 <= i < len(d.headers) and not blank(d.headers[i]):
            assert found is None or found.digest == d.headers[i].digest
            found = d.headers[i]
    return found
