"""What a shipper is told at its start, and of the shard's members again."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Role:
    """Which shard is shipped by whom, and how."""

    cluster: bytes
    shard: int
    node: int
    members: tuple[int, ...]  # nodes that hold the shard, in the order of turns without a farm
    segment_records: int
    period_us: int
    patience_us: int  # late by so much, a period is an alarm, and others may claim
    may_claim: bool  # the operator lets this node ship
    shared: bool  # every node sees the same target
