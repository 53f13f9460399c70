"""`tigerchat clock`: bring the time of a log back that a clock was ahead of once."""

import asyncio
from pathlib import Path

import click

from appliance.base.errors import StorageError
from appliance.base.limits import LOG_AHEAD_US_MAX
from appliance.cores.console.about import About
from appliance.cores.console.cells import duration
from appliance.cores.console.site_acts import no_replica, not_ahead
from appliance.drivers.host import clock
from appliance.drivers.host.neighbours import neighbours
from appliance.drivers.host.node_folder import SOCKETS_FOLDER, NodeFolder, read_node
from appliance.drivers.network.ask import status_of
from appliance.drivers.terminal.options import LOCAL_DEFAULT, node_options
from appliance.formats.site import SITE_FILE, Shard, load_site
from appliance.formats.status.replica import GroupClock, ReplicaStatus
from appliance.node.acting import ActSite
from appliance.roles.operator.clock_correcting import correct_to, moment


@click.group("clock")
def command() -> None:
    """The time that messages bear, where a clock was ahead once."""


@command.command("correct")
@node_options
@click.option("--yes", is_flag=True, help="Do not ask whether this machine's clock is right.")
@click.pass_context
def correct(ctx: click.Context, local: Path | None, node_folder: Path | None, yes: bool) -> None:
    """Bring log time back to this machine's clock, in each shard that is ahead of it.

    It is written into the log: messages before it keep their times and their places, those behind
    it bear the time of the clocks again. Set the clocks of all nodes right first. All nodes have
    to run, with a program that knows this command, and agree about the time within five minutes.

    Exit code 0: no log is ahead any more; 1: it was refused or could not be committed, or nobody
    confirmed it.
    """
    nodes = _nodes(local, node_folder)
    for shard in nodes[0].site.shards:
        node, of_clock = _asked(nodes, shard)
        ahead_us = of_clock.log_ahead_us
        if ahead_us <= LOG_AHEAD_US_MAX:
            click.echo(f"clock: {not_ahead(shard.number)}")
            continue
        own_us, now_us = of_clock.log_us - of_clock.corrected_us, clock.realtime_us()
        click.echo(
            f"clock: shard {shard.number}: log time is {moment(own_us)}, the clock of this "
            f"machine says {moment(now_us)}"
        )
        if not yes and not click.confirm("Is the clock right?"):
            ctx.exit(1)
        log_seq = asyncio.run(correct_to(node, shard, now_us))
        click.echo(
            f"clock: shard {shard.number}: record {log_seq} brings log time back by "
            f"{duration(ahead_us // 1000)}"
        )
        ActSite(node.path, node.path, node.site).record("clock-correct", About(shard=shard.number))


def _nodes(local: Path | None, node_folder: Path | None) -> list[NodeFolder]:
    if node_folder is not None:
        return [read_node(node_folder.absolute())]
    folder = (local or Path(LOCAL_DEFAULT)).absolute()
    site = load_site(folder / SITE_FILE)
    found = neighbours(folder / site.nodes[0].name, site)
    if not found:
        raise StorageError("no node of the site is on this machine")
    return [read_node(log_seq.path) for log_seq in found]


def _asked(nodes: list[NodeFolder], shard: Shard) -> tuple[NodeFolder, GroupClock]:
    """A node whose replica of the shard serves, and what it says of its clock."""
    for node in nodes:
        sockets = node.path / SOCKETS_FOLDER
        status = status_of(ReplicaStatus, sockets, cluster=node.site.cluster, number=shard.number)
        if status is not None and status.serves:
            return node, status.clock
    raise StorageError(no_replica(shard.number))
