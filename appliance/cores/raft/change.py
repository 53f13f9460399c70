"""A change of the members under way, one at a time: at a leader, or at who joins."""

from dataclasses import dataclass

from appliance.formats.raft_legacy.configuration import Server


@dataclass(slots=True)
class Join:
    """A server that is being brought up to date before it is listed.

    `position`: index of the last entry it holds; `size`: bytes of the records of all it stored.
    """

    server: Server
    since_tick: int  # of the last progress
    accepted: bool = False  # it said yes to JoinCluster
    synced: bool = False  # it got a pack: whatever it held before is overwritten
    position: int = 0
    size: int = 0
    listed: bool = False  # the Configuration with it is in the log


@dataclass(slots=True)
class Removal:
    """A server that was asked to leave before it is listed no more."""

    server_id: int
    since_tick: int
    asked: bool = False
    listed: bool = False  # the Configuration without it is in the log


@dataclass(slots=True)
class Stay:
    """At a joiner: the members of the farm that asked it first."""

    servers: frozenset[Server]
