"""The farm of a site: its status, and what an operator does to it."""

from pathlib import Path
from typing import Any

import click
from msgspec import UNSET

from appliance.base.errors import StorageError
from appliance.base.printable import json_line
from appliance.commands.farm_verbs.options import FOLDER
from appliance.drivers.terminal.options import node_options_saying
from appliance.formats.status.part import plain
from appliance.roles.operator.farm import (
    Asker,
    check_described,
    check_shard,
    let_in,
    lines,
    member_named,
    take_out,
)

_NODE_OPTIONS = node_options_saying(node="The node in F alone.")


def _do(asker: Asker, wish: dict[str, Any]) -> None:
    """Have an act done, and say what is so then."""
    index = asker.any()
    asker.do(index, wish)
    click.echo(asker.shown(index, wish))


@click.command("status")
@_NODE_OPTIONS
@click.option("--json", "as_json", is_flag=True, help="Everything that was said, an object a line.")
def status_command(local: Path | None, node_folder: Path | None, as_json: bool) -> int:
    """Leader, term, members with their match, statuses with their age, publisher and why."""
    asker = Asker(local, node_folder)
    found = asker.statuses()
    if as_json:
        for answer in found.values():
            click.echo(json_line(plain(answer)))
        return 0
    members = [said for said in found.values() if not said.out]
    if not members:
        click.echo(next(iter(found.values())).out)
        return 1
    leads = [said for said in members if said.role == "leader"]
    said = max(leads or members, key=lambda each: (each.term, each.commit))
    for line in lines(asker.site, said):
        click.echo(line)
    return 0 if said.leader > 0 else 1


@click.command("exclude")
@click.argument("names", nargs=-1, required=True)
@click.option("--lift", is_flag=True, help="Let them in again.")
@_NODE_OPTIONS
def exclude_command(
    names: tuple[str, ...], lift: bool, local: Path | None, node_folder: Path | None
) -> None:
    """Keep nodes, or identities of services, out of the directory."""
    asker = Asker(local, node_folder)
    nodes = {node.name: str(node.farm_id) for node in asker.site.nodes}
    wanted = [nodes.get(name, name) for name in names]
    _do(asker, {"do": "exclude", "names": wanted, "lift": lift})


@click.command("publish")
@_NODE_OPTIONS
def publish_command(local: Path | None, node_folder: Path | None) -> None:
    """Sign the directory anew now; refused by all but the node that publishes."""
    asker = Asker(local, node_folder)
    index = next(iter(asker.folders))
    if node_folder is None:
        views = [said.view for said in asker.statuses().values()]
        holders = [view.publisher for view in views if view is not UNSET]
        publisher = max(holders, default=0)
        index = next((n.index for n in asker.site.nodes if n.farm_id == publisher), 0)
    asker.publish(index)


@click.command("place")
@click.argument("shard", type=click.IntRange(0))
@click.argument("names", nargs=-1)
@click.option("--lift", is_flag=True, help="Want nothing of the shard; what is half done stays so.")
@_NODE_OPTIONS
def place_command(
    shard: int, names: tuple[str, ...], lift: bool, local: Path | None, node_folder: Path | None
) -> None:
    """Have the replicas of SHARD moved to nodes NAMES, one after the other, while clients write.

    As many as vote now, in any order, are to vote; those named behind them are to follow. Whoever
    is not named leaves the shard. `tigerchat farm status` tells how far it is.
    """
    if lift == bool(names):
        raise click.UsageError("name the nodes that are to hold the shard, or say --lift")
    asker = Asker(local, node_folder)
    check_shard(asker.site, shard)
    nodes = [member_named(asker.site, name) for name in names]
    check_described(asker.site, shard, nodes)
    _do(asker, {"do": "place", "shard": shard, "nodes": [node.farm_id for node in nodes]})


@click.command("yield")
@_NODE_OPTIONS
def yield_command(local: Path | None, node_folder: Path | None) -> None:
    """Let the leader, if it is on this machine, hand over to another member."""
    asker = Asker(local, node_folder)
    for index, said in asker.statuses().items():
        if said.role == "leader":
            asker.hand_over(index)
            return
    raise StorageError("no member of this machine leads: run it where `farm status` says")


@click.command("remove")
@click.argument("name")
@_NODE_OPTIONS
def remove_command(name: str, local: Path | None, node_folder: Path | None) -> None:
    """Take the member of node NAME out of the farm, until that is committed."""
    asker = Asker(local, node_folder)
    node = member_named(asker.site, name)
    take_out(asker, node)
    click.echo(f"{node.name} is a member of the farm no more")


@click.command("admit")
@click.argument("name")
@_NODE_OPTIONS
def admit_command(name: str, local: Path | None, node_folder: Path | None) -> None:
    """Let the member of node NAME, which was removed, into the farm again, with an empty log."""
    asker = Asker(local, node_folder)
    node = member_named(asker.site, name)
    let_in(asker, node)
    click.echo(f"{node.name} is a member of the farm")


@click.command("leave")
@click.option("--node-folder", type=FOLDER, metavar="F", required=True, help="The node in F.")
def leave_command(node_folder: Path) -> None:
    """Take this node's own member out of the farm; a leader yields first."""
    asker = Asker(None, node_folder)
    node = asker.site.nodes[next(iter(asker.folders))]
    take_out(asker, node)
    click.echo(f"{node.name} is a member of the farm no more")


@click.command("period")
@click.argument("milliseconds", type=int)
@_NODE_OPTIONS
def period_command(milliseconds: int, local: Path | None, node_folder: Path | None) -> None:
    """Say how often nodes post; a status is recent for 3, a directory valid for 10 of these."""
    asker = Asker(local, node_folder)
    _do(asker, {"do": "period", "ms": milliseconds})
