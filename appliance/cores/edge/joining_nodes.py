"""Nodes that joined the site, as shard 0 tells: those that the site file of this node lacks.

record of a position ──learn──▶ known ──next_after──▶ appended to the site file, in order
"""

from collections.abc import Sequence

from appliance.formats.joining_node import decode_joining
from appliance.formats.site import Node


class JoiningNodes:
    """Holds one node for each position behind those of the site file, at most as many as a site may
    have."""

    def __init__(self, described: int) -> None:
        self.is_missed = False  # the group has a member that nobody has described yet
        self._described = described  # nodes of the site file
        self._known: dict[int, Node] = {}

    def learn(self, acts: Sequence[tuple[int, bytes]]) -> None:
        """As `shard_room.Listener`. The log takes one record for a position: should it have let go
        of that, the first one that was heard counts."""
        for _, body in acts:
            node = decode_joining(body)
            if node is not None and node.index >= self._described:
                self._known.setdefault(node.index, node)

    def since_us(self, now_us: int) -> int:
        """All that was ever said matters while a member is missed: it may have joined long ago."""
        return 0 if self.is_missed else now_us

    def next_after(self, described: int) -> Node | None:
        """Who comes behind so many nodes of the site file, which are forgotten here."""
        self._described = described
        for index in [index for index in self._known if index < described]:
            del self._known[index]
        return self._known.get(described)
