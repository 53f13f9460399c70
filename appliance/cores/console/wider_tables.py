"""Tables of what is wider than a shard: machines, disks, ways of clients, the farm, the objects,
other sites."""

from appliance.cores.console.about import About
from appliance.cores.console.act import FARM
from appliance.cores.console.alarm import node_name
from appliance.cores.console.cells import (
    BAD,
    GOOD,
    NOTHING,
    PLAIN,
    WARN,
    Cell,
    Table,
    count,
    duration,
    size,
)
from appliance.cores.console.disks import troubles
from appliance.cores.console.model import SiteSnapshot

MACHINE_COLUMNS = ("machine of", "profile", "differences", "what differs")


def machine_table(snapshot: SiteSnapshot) -> Table:
    """How far each node's machine is from what its model is expected to be."""
    rows = tuple(
        (
            Cell(node_name(snapshot, machine.node)),
            Cell(machine.profile),
            Cell(count(len(machine.differences)), WARN if machine.differences else GOOD),
            Cell(", ".join(machine.differences) or NOTHING),
        )
        for machine in snapshot.machines
    )
    return Table("Machines", MACHINE_COLUMNS, (2,), rows)


TRANSPORT_COLUMNS = (
    "edge",
    "node",
    "transport",
    "connections",
    "received",
    "sent",
    "refused",
    "ended",
    "most often for",
)
_REASONS_SHOWN = 3


def transport_table(snapshot: SiteSnapshot) -> Table:
    """By what clients come to each edge, and why they were refused or sent away."""
    rows = tuple(
        (
            Cell(str(edge.number)),
            Cell(node_name(snapshot, edge.node)),
            Cell(transport.name),
            Cell(count(transport.connections)),
            Cell(size(transport.received)),
            Cell(size(transport.sent)),
            Cell(count(sum(often for _, often in transport.refused))),
            Cell(count(sum(often for _, often in transport.ended))),
            Cell(_most_often((*transport.refused, *transport.ended))),
        )
        for edge in snapshot.edges
        if edge.own is not None and not edge.removed
        for transport in edge.own.transports
    )
    return Table("Transports", TRANSPORT_COLUMNS, (3, 4, 5, 6, 7), rows)


def _most_often(counted: tuple[tuple[str, int], ...]) -> str:
    first = sorted(counted, key=lambda row: (-row[1], row[0]))[:_REASONS_SHOWN]
    return ", ".join(f"{why} {count(often)}" for why, often in first) or NOTHING


DISK_COLUMNS = ("disks of", "disk", "health", "spare", "used", "temperature", "media errors")


def disk_table(snapshot: SiteSnapshot) -> Table:
    """The disks under the volumes of each node that says so, once for each."""
    rows: dict[tuple[str, str], tuple[Cell, ...]] = {}
    for member in (member for shard in snapshot.shards for member in shard.members):
        disk = member.own.disk if member.own is not None and not member.removed else None
        if disk is None or not (disk.health or disk.device):
            continue  # a volume of files on a disk that tells nothing: as everywhere
        node = node_name(snapshot, member.node)
        for name, why in disk.untold:
            shown = disk.device or name
            rest = (Cell(NOTHING),) * 4
            rows[node, shown] = (Cell(node), Cell(shown), Cell(f"not told: {why}"), *rest)
        for name, health in disk.health:
            found = sorted(troubles(health))
            words = "; ".join(text for _, text in found) or "good"
            rows[node, name] = (
                Cell(node),
                Cell(name),
                Cell(words, found[0][0] if found else GOOD),
                Cell(f"{health.spare_percent} %"),
                Cell(f"{health.used_percent} %"),
                Cell(f"{health.temperature_c} °C"),
                Cell(count(health.media_errors)),
            )
    return Table("Disks", DISK_COLUMNS, (3, 4, 5, 6), tuple(rows.values()))


FARM_COLUMNS = ("member", "role", "term", "match", "status age", "directory", "why")


def farm_table(snapshot: SiteSnapshot) -> Table:
    """Members of the farm whose nodes belong to the site; beside the publisher stands why it is
    the one.
    """
    farm = snapshot.farm
    removed = {edge.node for edge in snapshot.edges if edge.removed}
    nodes = {node.farm_id: node for node in snapshot.site.nodes}
    rows, subjects = [], []
    for member in farm.members if farm is not None else ():
        assert farm is not None
        node = nodes.get(member.id)
        if node is not None and node.index in removed:
            continue
        publishes = member.id == farm.publisher
        subjects.append(About() if node is None else About(node.index))
        rows.append(
            (
                Cell(str(member.id) if node is None else node.name),
                Cell("leader", GOOD) if member.id == farm.leader else Cell("follower"),
                Cell(count(farm.term)),
                Cell(count(member.match)),
                Cell(duration(member.age_ms) if member.age_ms >= 0 else NOTHING),
                Cell(f"publishes {farm.directory}" if publishes else NOTHING),
                Cell(farm.why if publishes else NOTHING),
            )
        )
    return Table(FARM, FARM_COLUMNS, (2, 3, 4), tuple(rows), tuple(subjects))


MOVES_COLUMNS = ("next", "since")


def moves_table(snapshot: SiteSnapshot) -> Table:
    """What is to be moved; beside the one whose turn it is stands for how long it has been."""
    farm = snapshot.farm
    steps = farm.moves if farm is not None else ()
    stood_ms = farm.moves_stood_ms if farm is not None else 0
    rows = tuple(
        (Cell(step), Cell(NOTHING if turn else duration(stood_ms)))
        for turn, step in enumerate(steps)
    )
    return Table("Moves", MOVES_COLUMNS, (), rows)


OBJECTS_COLUMNS = ("objects of", "source", "links", "live", "sites", "lag", "refused", "seen")


def objects_table(snapshot: SiteSnapshot) -> Table:
    """Objects of each node: who it is linked to, what it has seen and what it refused."""
    rows = []
    for line in snapshot.objects:
        sites = ", ".join(map(str, line.sites))
        rows.append(
            (
                Cell(node_name(snapshot, line.node), BAD if line.alarm else PLAIN),
                Cell(line.source),
                Cell(", ".join(line.links) or NOTHING),
                Cell(count(line.live_links)),
                Cell(sites or NOTHING),
                Cell(count(line.behind)),
                Cell(count(line.refused)),
                Cell(line.vector or NOTHING),
            )
        )
    return Table("Objects", OBJECTS_COLUMNS, (3, 5, 6), tuple(rows))


FEDERATION_COLUMNS = (
    "federation of",
    "other site",
    "links",
    "rooms",
    "not acknowledged",
    "waiting",
    "missing",
    "sent again",
    "dropped",
)


def federation_table(snapshot: SiteSnapshot) -> Table:
    """Each other site as each node sees it; what a node dropped stands beside the first of them."""
    rows = []
    for line in snapshot.federation:
        name = f"{line.name} on {node_name(snapshot, line.node)}"
        drops = ", ".join(f"{reason} {count(number)}" for reason, number in line.dropped)
        for position, site in enumerate(line.sites):
            again = f"{100 * site.resent / site.sent:.1f} %" if site.sent else NOTHING
            rows.append(
                (
                    Cell(name, BAD if line.errors else PLAIN),
                    Cell(site.site),
                    Cell(count(site.links), BAD if site.cut_off else PLAIN),
                    Cell(count(site.rooms)),
                    Cell(count(site.unacknowledged)),
                    Cell(count(site.waiting)),
                    Cell(count(site.missing)),
                    Cell(again),
                    Cell(drops if drops and not position else NOTHING),
                )
            )
    return Table("Federation", FEDERATION_COLUMNS, tuple(range(2, 8)), tuple(rows))
