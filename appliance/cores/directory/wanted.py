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
        reached; but an act that means none is of a program of before, under which nothing moved by
        a placement: what it says anew, nobody follows."""
        nodes, meant = placement_of(config["placement"]), config.get(PLACING)
        if meant is None:
            left = {s for s in nodes if s in self.reached or nodes[s] != self.nodes.get(s)}
        else:
            same = [s for s in sorted(self.reached) if nodes.get(s) == self.nodes.get(s)]
            left = {s for s in same if s != meant}
        return Placement(date, nodes, frozenset(left))

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
        """For a snapshot; a program of before passes over what was reached."""
        found: dict[str, Any] = {"placement": [self.date, sorted(self.nodes.items())]}
        return found | ({"reached": sorted(self.reached)} if self.nodes else {})

    @classmethod
    def of_state(cls, state: Mapping[str, Any]) -> "Placement":
        """As a snapshot has it. In one of before, nothing of it is to be followed."""
        date, nodes = state["placement"]
        placed = {shard: tuple(members) for shard, members in nodes}
        return cls(date, placed, frozenset(state.get("reached", placed)))
