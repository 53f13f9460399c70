"""Counters of the same run that show that nothing was loosened for the sake of speed.

What replicas tell of themselves, what strace counts, what a stranger meets at their ports and what
lies in their volumes in the end. A replica counts a frame as received only after it has passed all
checks, its signature among them: so verified is received. It does not tell how many links of the
chain it has checked at commit: what is told of chains is counted in a volume, afterwards.
"""

from dataclasses import dataclass
from typing import Any

Row = dict[str, Any]
Status = dict[str, Any]
# Frames that edges exchange with replicas, also within a node, where nothing is signed.
WITH_EDGES = frozenset(("request", "reply", "ping_client", "pong_client", "eviction"))
FLUSHES_MIN = 1.5  # a prepare and replica, one message in flight: it is two, few of them shared
UNDER_WAY = 200  # frames between two replicas' answers, of heartbeats


@dataclass(frozen=True)
class Frames:
    """Of all replicas of a site together, since they started."""

    signed: int  # numbers that were used up: one for each frame, whoever gets it
    sent: int  # to other replicas; one that goes to two counts twice
    received: int  # from them, verified
    dropped: int  # for whatever check
    links: int  # that stand, of those that there are


def frames_of(statuses: list[Status]) -> Frames:
    def between(counts: dict[str, int]) -> int:
        return sum(
            count
            for name, count in counts.items()
            if name not in WITH_EDGES and not name.startswith("local_")
        )

    return Frames(
        signed=sum(status["nonce"] & 0xFFFF_FFFF for status in statuses),
        sent=sum(between(status["sent"]) for status in statuses),
        received=sum(between(status["received"]) for status in statuses),
        dropped=sum(sum(status["dropped"].values()) for status in statuses),
        links=sum(sum(status["links"].values()) for status in statuses),
    )


def flushes_of_prepares(count: int, before: list[Status], after: list[Status]) -> float | None:
    """Flushes for each prepare on each replica; None where nothing was prepared."""
    prepares = max(s["op"] for s in after) - max(s["op"] for s in before)
    return round(count / prepares / len(after), 2) if prepares else None


def loosened(row: Row) -> list[str]:
    """What does not hold of the site of a row, in words."""
    frames = Frames(**row["frames"])
    nodes = row["nodes"]
    out = []
    flushes = row["flushes"].get(1)
    if flushes is not None and flushes < FLUSHES_MIN:
        out.append(f"{flushes} flushes a prepare and replica, at least {FLUSHES_MIN}")
    if abs(frames.sent - frames.received) > UNDER_WAY:
        out.append(f"{frames.sent} frames sent, {frames.received} verified")
    if frames.dropped:
        out.append(f"{frames.dropped} frames dropped by a check")
    if frames.signed < frames.sent / (nodes - 1):
        out.append(f"{frames.sent} frames sent, {frames.signed} signed")
    if frames.links != nodes * (nodes - 1):
        out.append(f"{frames.links} links between replicas stand")
    for version, refused in row["peers"]:
        if version != "TLSv1.3" or not refused:
            out.append(f"a stranger meets {version}, and is {'' if refused else 'not '}refused")
    if not row["links"] or row["broken"]:
        out.append(f"{row['broken']} of {row['links']} links of the rooms' chains are broken")
    return [f"{row['product']}: {line}" for line in out]


def text(row: Row) -> str:
    """A line for people."""
    frames = Frames(**row["frames"])
    flushes = ", ".join(f"{count} at {depth}" for depth, count in sorted(row["flushes"].items()))
    versions = {version or "none" for version, _ in row["peers"]}
    refused = sum(refused for _, refused in row["peers"])
    return (
        f"{row['product']}: flushes a prepare and replica by messages in flight: {flushes or '-'}; "
        f"between replicas {frames.sent} frames sent, signed with {frames.signed} numbers, "
        f"{frames.received} verified, {frames.dropped} dropped; {'/'.join(sorted(versions))} at "
        f"peer ports, {refused} of {row['nodes']} turn a stranger away; {row['links']} links of "
        f"chains checked in a volume, {row['broken']} broken"
    )
