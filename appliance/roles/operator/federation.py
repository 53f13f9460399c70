"""What an operator does with a site among others: its file on every node, what it tells."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

from appliance.base.errors import ConfigurationError, StorageError
from appliance.base.printable import counted, safe
from appliance.cores.federation.difference import DifferenceSearch
from appliance.drivers.host.federation_file import write_federation
from appliance.drivers.host.neighbours import neighbours
from appliance.drivers.host.node_folder import SOCKETS_FOLDER, NodeFolder, read_node
from appliance.drivers.network.ask import ask_for, listens, status_of
from appliance.formats.federation_site import FederationSite
from appliance.formats.site import SITE_FILE, load_site
from appliance.formats.status.federation import (
    FederationStatus,
    LogSummary,
    OwnLogs,
    SharedRoomStatus,
)
from appliance.formats.status.status import parse

ANSWER_S = 5.0  # for the federation of a node that is there and busy
_ANSWERS_S = 3.0  # for other sites to tell of their logs
_PAUSE_S = 1.1  # between two questions for one log: a site answers one a second
_POLL_S = 0.1  # between two looks whether they have
Told = TypeVar("Told")


def nodes_of(folder: Path) -> list[NodeFolder]:
    """The nodes of a local site that are on this machine, by index."""
    site = load_site(folder / SITE_FILE)
    found = neighbours(folder / site.nodes[0].name, site)
    nodes = [read_node(position.sockets.parent) for position in found]
    if not nodes:
        raise ConfigurationError(f"no node of the site in {folder} is on this machine")
    return nodes


def write_site(nodes: list[NodeFolder], site: FederationSite) -> None:
    """To every node of this machine; those that run follow at once. StorageError names one that
    does not."""
    for node in nodes:
        write_federation(node.path, site)
    for node in nodes:
        told = request(node, {"wish": "reload"})
        if told is not None and "error" in told:
            raise StorageError(f"{node.node.name}: {told['error']}")
        if told is None and is_there(node):
            raise StorageError(
                f"{node.node.name}: its federation runs and does not answer: until it is started "
                "again it goes by what it knew before"
            )


def ask(node: NodeFolder) -> FederationStatus | None:
    """How the node's federation is; None: it does not run."""
    return status_of(
        FederationStatus,
        node.path / SOCKETS_FOLDER,
        cluster=node.site.cluster,
        timeout_s=ANSWER_S,
    )


def request(node: NodeFolder, wish: dict[str, Any]) -> dict[str, Any] | None:
    """What the node's federation answers to a wish; None: it does not run."""
    sockets, cluster = node.path / SOCKETS_FOLDER, node.site.cluster
    return ask_for(FederationStatus, sockets, wish, cluster=cluster, timeout_s=ANSWER_S)


def own_logs(node: NodeFolder) -> OwnLogs | None:
    """What the node says itself of the rooms that it carries, and asks other sites for; None: no
    federation runs there."""
    return _summed_up(node, {"wish": "summaries"})


def _summed_up(node: NodeFolder, wish: dict[str, Any]) -> OwnLogs | None:
    told = request(node, wish)
    return None if told is None else parse(OwnLogs, told)


def told_by(
    nodes: list[NodeFolder], question: Callable[[NodeFolder], Told | None]
) -> Iterator[tuple[NodeFolder, Told | None]]:
    """Each node with what its federation tells; StorageError in the end if none told anything."""
    silent = True
    for node in nodes:
        told = question(node)
        silent = silent and told is None
        yield node, told
    if silent:
        raise StorageError("no federation answers here: start the nodes first")


def is_there(node: NodeFolder) -> bool:
    """Whether the node's federation runs, though it may be stuck."""
    return listens(node.path / SOCKETS_FOLDER, kind=FederationStatus.socket_kind())


def status_lines(name: str, told: FederationStatus) -> list[str]:
    links = [f"{site} {told.links.get(site, 0)}" for site in told.sites]
    lines = [f"{name}: site {told.site}; links: {', '.join(links) or 'no site is known'}"]
    for shard in told.shards:
        who = f"carries, claim {shard.generation}" if shard.carries else "stands by"
        lines.append(f"  shard {shard.shard}: {who}{_if(shard.error)}")
        lines += [f"    {_room_line(room)}" for room in shard.rooms]
    drops = ", ".join(f"{reason} {count}" for reason, count in sorted(told.dropped.items()))
    return [*lines, f"  dropped: {drops}"] if drops else lines


def _if(error: str) -> str:
    return f"; {error}" if error else ""


def _room_line(room: SharedRoomStatus) -> str:
    sites = ", ".join(f"{site} ({room.numbers.get(site, '?')})" for site in sorted(room.sites))
    return (
        f"{called(room.channel, room.room)}  {counted(room.log, 'message')} of {sites}; not yet "
        f"acknowledged {room.unacknowledged}, waiting {room.waiting}, "
        f"to be committed {room.ready}, missing {room.wanted}"
    )


def called(channel: str, title: str) -> str:
    """How people read which room it is: by its name, or by its id where no name is known."""
    return safe(title) or str(UUID(int=int.from_bytes(bytes.fromhex(channel), "little")))


class Summaries(NamedTuple):
    """What this site and the others that answered say of one log, when they were asked together."""

    own: LogSummary
    others: dict[str, LogSummary]


def summaries_of(
    node: NodeFolder, name: str, own: LogSummary | None, first: int = 0, last: int = 0
) -> Summaries | None:
    """Of the log of a room, or of its places from `first` to before `last`, as far as the other
    sites answer in time; None: the node carries the room no more. `own` is there where they were
    asked already.

    Who was asked within the last second says nothing: then all are asked again, as this site's log
    may have grown meanwhile.
    """
    deadline = time.monotonic() + _ANSWERS_S
    wish = {"wish": "summaries", "channel": name, "first": first, "last": last}
    best: Summaries | None = None
    while True:
        if own is None:
            told = _summed_up(node, wish)
            own = None if told is None else told.own.get(name)
        if own is None:
            return best
        others, is_whole = _others_of(node, name, min(deadline, time.monotonic() + _PAUSE_S))
        if best is None or len(others) >= len(best.others):
            best = Summaries(own, others)
        if is_whole or time.monotonic() >= deadline:
            return best
        own = None


def _others_of(node: NodeFolder, name: str, deadline: float) -> tuple[dict[str, LogSummary], bool]:
    """What other sites have told since they were asked; whether these are all that are reached."""
    while True:
        told = ask(node)
        if told is None:
            return {}, True
        found = told.summaries.get(name, {})
        rooms = [room for shard in told.shards for room in shard.rooms]
        sites = next((set(room.sites) for room in rooms if room.channel == name), set())
        reached = {site for site in sites if told.links.get(site)}
        if reached <= found.keys():
            return found, True
        if time.monotonic() >= deadline:
            return found, False
        time.sleep(_POLL_S)


class Difference(NamedTuple):
    """The first place, from 0, at which two logs differ, and what both have there; an entry that
    is not there has an empty `newest`."""

    position: int
    own: LogSummary
    other: LogSummary


def first_difference(node: NodeFolder, name: str, site: str, count: int) -> Difference | None:
    """Of a room here and at another site, the longer log of which has `count` messages. None: the
    site gave no answer, or the logs have become equal meanwhile.

    Takes a second for each sixteenfold of `count`, as sites sum up once a second.
    """
    search = DifferenceSearch(count)
    while True:
        time.sleep(_PAUSE_S)
        first, last = search.span
        found = summaries_of(node, name, None, first, last)
        own, other = (None, None) if found is None else (found.own, found.others.get(site))
        if own is None or other is None or other.places != (first, last):
            return None
        if search.found:
            differs = own.newest != other.newest
            return Difference(first, own, other) if differs else None
        if not search.take(own.marks, other.marks):
            return None


def difference_line(room: str, site: str, found: Difference | None) -> str:
    """What an operator reads of it; `room` as it is `called`."""
    if found is None:
        return f"{room}  {site}: told no place where it differs; ask again"
    here, there = (one.newest or "nothing" for one in (found.own, found.other))
    return (
        f"{room}  {site}: differs first at message {found.position + 1}: here {here}, there {there}"
    )


def verified_lines(room: str, own: LogSummary, others: dict[str, LogSummary]) -> list[str]:
    """What an operator reads of one room, as it is `called`, here and elsewhere."""
    lines = [f"{room}  here: {counted(own.count, 'message')}, order {own.order[:16]}"]
    for site, other in sorted(others.items()):
        what = "equal" if other == own else f"{other.count} messages, order {other.order[:16]}"
        lines.append(f"{room}  {site}: {what}")
    if not others:
        lines.append(f"{room}  no other site answered")
    return lines
