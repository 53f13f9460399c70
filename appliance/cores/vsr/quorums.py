"""Quorums of a group of 1 to 6 replicas.

Required: replication + view_change > R (a view change sees every committed op) and nack +
replication > R (enough nacks prove that no replication quorum ever existed).
"""

from typing import NamedTuple

from appliance.base.limits import REPLICAS_MAX


class Quorums(NamedTuple):
    """Replicas needed to commit, to change the view, and to truncate."""

    replication: int
    view_change: int
    nack: int


def quorums(replica_count: int) -> Quorums:
    """The table's row for `replica_count` replicas."""
    assert 1 <= replica_count <= REPLICAS_MAX
    replication = 2 if replica_count == 2 else min(3, (replica_count + 1) // 2)
    view_change = 2 if replica_count == 2 else replica_count - replication + 1
    return Quorums(replication, view_change, replica_count - replication + 1)


for _count in range(1, REPLICAS_MAX + 1):
    _row = quorums(_count)
    assert _row.replication + _row.view_change > _count
    assert _row.nack + _row.replication > _count
assert [tuple(quorums(n)) for n in range(1, 7)] == [
    (1, 1, 1),
    (2, 2, 1),
    (2, 2, 2),
    (2, 3, 3),
    (3, 3, 3),
    (3, 4, 4),
]
