"""Where the replicas of shards are to be, as an administrator said last, and where that is so.

A placement is a wish with an end: once the newest report of a shard's group agrees with it, it has
been reached, and what an operator does to the group by hand afterwards is his own affair, until the
shard is placed anew.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from appliance.cores.directory.acts import placement_of
from appliance.cores.directory.moving import distance
from appliance.cores.directory.status import Group

PLACING = "placing"  # key of `config` beside `placement`: the shard that was meant


@dataclass(slots=True, frozen=True)
class Placement:
    """`nodes`: of each shard that was placed, in order; `reached`: shards of which none is left to
    move. `date` of the act."""

    date: int = 0
    nodes: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    reached: frozenset[int] = frozenset()

    def placed(self, date: int, config: Mapping[str, Any]) -> "Placement":
        """After an act. What it says anew of a shard, or of the one that it means, counts as not
        reached."""
        nodes, meant = placement_of(config["placement"]), config.get(PLACING)
        same = [s for s in sorted(self.reached) if nodes.get(s) == self.nodes.get(s) and s != meant]
        return Placement(date, nodes, frozenset(same))

    def reported(self, groups: Iterable[Group]) -> "Placement":
        """After these groups were reported, each the newest one that is known of its shard."""
        there = {
            group.shard
            for group in groups
            if group.shard in self.nodes and not distance(self.nodes[group.shard], group)
        }
        return self if there <= self.reached else replace(self, reached=self.reached | there)

    @property
    def open(self) -> dict[int, tuple[int, ...]]:
        """What has not been reached."""
        return {shard: nodes for shard, nodes in self.nodes.items() if shard not in self.reached}

    def state(self) -> dict[str, Any]:
        """For a snapshot; an earlier version passes over what was reached."""
        found: dict[str, Any] = {"placement": [self.date, sorted(self.nodes.items())]}
        return found | ({"reached": sorted(self.reached)} if self.reached else {})

    @classmethod
    def of_state(cls, state: Mapping[str, Any]) -> "Placement":
        """As a snapshot has it."""
        date, nodes = state["placement"]
        reached = frozenset(state.get("reached", ()))
        return cls(date, {shard: tuple(placed) for shard, placed in nodes}, reached)
