"""Which process of a node runs on which core.

Replicas and edges are busy and want a core each; the others, and whatever else the machine does,
keep house on the rest. Best first:

    isolated   the kernel keeps enough cores free for the busy ones: they get those
    physical   a physical core for each busy one, and one for the house
    logical    a logical core for each busy one, and one for the house
    none       all float
"""

import dataclasses
from collections.abc import Sequence

from appliance.drivers.host.topology import Core
from appliance.node.child import Child


def placed(children: Sequence[Child], available: Sequence[Core]) -> tuple[list[Child], str]:
    """The children with their cores, and how that came about, in words."""
    busy = [child for child in children if child.has_own_core]
    for how, chosen in _ways(len(busy), available):
        if chosen is None:
            continue
        taken = {core.physical for core in chosen} if how != "logical" else set()
        numbers = {core.number for core in chosen}
        house = frozenset(
            core.number
            for core in available
            if core.number not in numbers and core.physical not in taken and not core.isolated
        )
        if not house:
            continue
        own = {
            child.name: frozenset((core.number,)) for child, core in zip(busy, chosen, strict=True)
        }
        named = ", ".join(f"{name} on {min(cores)}" for name, cores in own.items())
        return (
            [dataclasses.replace(child, cores=own.get(child.name, house)) for child in children],
            f"{how} cores: {named}; the rest on {', '.join(map(str, sorted(house)))}",
        )
    return list(children), (
        f"too few cores for {len(busy)} replicas and edges and the rest: all processes float"
    )


def _ways(count: int, available: Sequence[Core]) -> list[tuple[str, list[Core] | None]]:
    """The cores for as many busy processes, by each way; None where it does not do."""
    firsts = list({core.physical: core for core in reversed(available)}.values())[::-1]
    isolated = [core for core in firsts if core.isolated]
    common = [core for core in firsts if not core.isolated]
    # By number from the end: the kernel's own work and most interrupts begin at the first.
    floor = [core for core in available if not core.isolated]
    return [
        ("isolated", isolated[:count] if len(isolated) >= count else None),
        ("physical", common[-count:] if len(common) > count > 0 else None),
        ("logical", floor[-count:] if len(floor) > count > 0 else None),
    ]
