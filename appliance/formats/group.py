"""Who belongs to a shard's group, as a value.

Every process of a node starts with it, so it needs nothing that takes long to import. Its bytes,
and the operations that change it, are in `membership`.
"""

from dataclasses import dataclass

ID_SIZE = 16  # of a replica


@dataclass(frozen=True, slots=True)
class Configuration:
    """The members of a group, replicas before standbys."""

    epoch: int
    op: int
    replica_count: int
    members: tuple[bytes, ...]

    @property
    def standby_count(self) -> int:
        return len(self.members) - self.replica_count
