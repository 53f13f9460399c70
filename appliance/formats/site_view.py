"""The site as it is now: what its file describes, and what its groups report of themselves.

    site file ──────────────────▶ ┌──────────┐ ──▶ who votes, stands by, is outside
    members, epoch of replicas ─▶ │ SiteView │ ──▶ where each listens, whose keys count
                                  └──────────┘

The file only ever grows, so a position in it names a member for good: frames do. Whether it is one,
and whether it votes, the group alone knows: the order of the file says so only of a group of which
nobody has reported yet. A view is a value: another file or another report makes another view.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property

from appliance.base.limits import MEMBERS_MAX
from appliance.formats.group import ID_SIZE, Configuration
from appliance.formats.site import Node, Shard, Site
from appliance.formats.status.replica import MemberState

UNDESCRIBED = -1  # in place of a position: a member that this site file does not describe yet


class Standing(StrEnum):
    """What a member of the site file is to a group."""

    VOTER = "voter"
    STANDBY = "standby"
    OUTSIDE = "outside"  # removed, or not added yet


@dataclass(frozen=True)
class Group:
    """Who belongs to one shard: as its members report, or else as the site file describes."""

    shard: Shard
    reported: Configuration | None = None

    @property
    def epoch(self) -> int:
        return self.reported.epoch if self.reported is not None else 0

    @property
    def replica_count(self) -> int:
        """How many vote."""
        known = self.reported
        return known.replica_count if known is not None else self.shard.replica_count

    @property
    def standby_count(self) -> int:
        return len(self.ids) - self.replica_count

    @property
    def quorum(self) -> int:
        """How many of those who vote must serve."""
        return self.replica_count // 2 + 1

    @property
    def ids(self) -> tuple[bytes, ...]:
        """By the index in the group, those that vote first."""
        known = self.reported
        return known.members if known is not None else tuple(self.shard.replica_ids)

    @cached_property
    def members(self) -> tuple[int, ...]:
        """Their positions in the site file, by the index in the group."""
        described = self.shard.replica_ids
        return tuple(described.index(i) if i in described else UNDESCRIBED for i in self.ids)

    @property
    def voters(self) -> tuple[int, ...]:
        return self.members[: self.replica_count]

    def standing(self, position: int) -> Standing:
        """Of the member that the site file describes there."""
        if position in self.voters:
            return Standing.VOTER
        return Standing.STANDBY if position in self.members else Standing.OUTSIDE

    @property
    def voter_nodes(self) -> tuple[int, ...]:
        """In the order in which they lead; without those that are not described."""
        return tuple(self.shard.members[at] for at in self.voters if at != UNDESCRIBED)

    @property
    def standby_nodes(self) -> tuple[int, ...]:
        standbys = self.members[self.replica_count :]
        return tuple(self.shard.members[at] for at in standbys if at != UNDESCRIBED)


@dataclass(frozen=True)
class SiteView:
    """`reported`: the newest configuration of each shard that anybody has told of."""

    site: Site
    reported: Mapping[int, Configuration] = field(default_factory=dict)

    # --- another view

    def described(self, site: Site) -> "SiteView":
        """With another site file."""
        return self if site == self.site else replace(self, site=site)

    def learned(self, shard: int, configuration: Configuration | None) -> "SiteView":
        """With what a member of `shard` reports; this one if that is nothing new."""
        known = self.reported.get(shard)
        if configuration is None or not 0 <= shard < len(self.site.shards):
            return self
        if known is not None and configuration.op <= known.op:
            return self
        return replace(self, reported={**self.reported, shard: configuration})

    # --- who

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        """By the number of the shard."""
        return tuple(Group(shard, self.reported.get(shard.number)) for shard in self.site.shards)

    @cached_property
    def outside(self) -> frozenset[int]:
        """Nodes that are described as members of shards, and belong to no group: removed, or not
        added yet."""
        inside = {n for group in self.groups for n in (*group.voter_nodes, *group.standby_nodes)}
        return frozenset(n for shard in self.site.shards for n in shard.members) - inside

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """Those that clients and operators may be sent to, in the order of the site file."""
        return tuple(node for node in self.site.nodes if node.index not in self.outside)

    # --- by what they are known

    @cached_property
    def public_keys(self) -> frozenset[bytes]:
        """Whose signatures count, in frames and in files: also of who is outside, as what it signed
        while it belonged stays signed, and the group itself says whom it hears."""
        return frozenset(node.public_key for node in self.site.nodes)

    @cached_property
    def anchors(self) -> tuple[str, ...]:
        """The certificates of all nodes, PEM."""
        return tuple(node.certificate_pem for node in self.site.nodes)

    @cached_property
    def pins(self) -> dict[bytes, int]:
        """Whose key a certificate shows: the node's index."""
        return {node.spki: node.index for node in self.site.nodes}


def configuration_in(state: MemberState) -> Configuration | None:
    """The group as a replica tells it; None when it tells of none, as an older program."""
    try:
        members = tuple(bytes.fromhex(text) for text in state.members)
    except ValueError:
        return None
    found = Configuration(state.epoch, state.members_op, state.replica_count, members)
    if found.epoch < 0 or found.op < 0:
        return None
    if not 1 <= found.replica_count <= len(members) <= MEMBERS_MAX:
        return None
    whole = all(len(member) == ID_SIZE for member in members)
    return found if whole and len(set(members)) == len(members) else None
