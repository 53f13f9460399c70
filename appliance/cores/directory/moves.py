"""What is to be moved, as the farm's log has it: the same on every member that has applied as
much."""

from collections.abc import Collection, Mapping

from appliance.cores.directory.directory import Directory
from appliance.cores.directory.moving import Step, steps
from appliance.cores.directory.status import Group


def levels(directory: Directory) -> dict[int, dict[int, int]]:
    """shard -> node -> per cent of its state, of those who serve it by a recent status."""
    found: dict[int, dict[int, int]] = {}
    for poster, held in directory.documents.items():
        for endpoint in held.status.endpoints if directory.is_recent(held) else ():
            if not endpoint.blacklisted:
                found.setdefault(endpoint.shard, {})[poster] = endpoint.synced
    return found


def moves(
    directory: Directory,
    described: Mapping[int, Collection[int]],
    groups: Mapping[int, Group] | None = None,
) -> list[Step]:
    """The next step of each shard that is to be moved, as `steps`. `described`: the members that
    the site file names for each; `groups`: newer than those that were reported."""
    wanted = directory.placement.open
    if not wanted:
        return []
    known = {**directory.groups(), **(groups or {})}
    present = {node for node, held in directory.documents.items() if directory.is_recent(held)}
    return steps(wanted, known, levels(directory), described, present)
