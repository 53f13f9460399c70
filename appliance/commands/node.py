"""`tigerchat node`: stop, kill, drain and start one node of a site on this machine.

Whoever keeps the processes is asked to: the supervisor of the local site for a whole node, that of
the node for its edges. Before a node is stopped it is looked whether each shard keeps a quorum.
Nothing is told as done before whoever keeps the process has said that it is.
"""

import asyncio
import os
import signal
from pathlib import Path

import click

from appliance.base.errors import ConfigurationError, StorageError
from appliance.drivers.host.neighbours import neighbours
from appliance.drivers.host.node_folder import SOCKETS_FOLDER
from appliance.drivers.terminal.options import LOCAL_DEFAULT
from appliance.formats.site import SITE_FILE, Site, load_site
from appliance.node.catalogue import ROLES
from appliance.node.keeping import STOP_S, Keeper, answers_alone, short_of, until
from appliance.roles.console.watch import Watch

LOOK_S = 0.4  # for a process to say how it is: whoever does not answer is not counted
START_S = 60.0  # for a process to serve, or to be told as halted
_LOCAL = click.option(
    "--local",
    type=click.Path(path_type=Path),
    default=Path(LOCAL_DEFAULT),
    metavar="DIR",
    help=f"The local site in DIR; {LOCAL_DEFAULT} if nothing else is said.",
)


@click.group("node")
def command() -> None:
    """Stop, kill, drain and start one node of a site on this machine."""


@command.command("stop")
@click.argument("name")
@_LOCAL
@click.option("--force", is_flag=True, help="Also when a shard is left without a quorum.")
def stop(name: str, local: Path, force: bool) -> None:
    """Stop the node NAME until `node start NAME`; refused if a shard would lose its quorum."""
    site, index = _find(local, name)
    if not force:
        _refuse_loss(site, local, index)
    keeper = Keeper(local, site.cluster)
    keeper.stop(name)
    until(lambda: keeper.child(name).has_ended, STOP_S, f"{name} has not ended")
    click.echo(f"node: {name} has stopped; `tigerchat node start {name}` starts it again")


@command.command("kill")
@click.argument("name")
@_LOCAL
def kill(name: str, local: Path) -> None:
    """Kill all processes of the node NAME with -9, to see that nothing is lost: the others go on,
    the node is started again by itself and catches up."""
    site, _ = _find(local, name)
    child = Keeper(local, site.cluster).child(name)
    pid = child.pid
    if pid is None:
        again = "is being started" if child.wanted else f"`tigerchat node start {name}` does so"
        raise StorageError(f"{name} does not run now: {again}")
    try:
        os.kill(pid, signal.SIGKILL)  # the kernel ends its processes with it
    except OSError as error:
        raise StorageError(f"{name}, process {pid}: {error.strerror}") from error
    click.echo(
        f"node: {name}, process {pid}, is killed; it is started again, see `tigerchat status`"
    )


@command.command("drain")
@click.argument("name")
@_LOCAL
def drain(name: str, local: Path) -> None:
    """Send the chat clients of NAME to other nodes; its replicas go on, until `node start NAME`."""
    site, _ = _find(local, name)
    _refuse_without_edges(site, local, name)
    Keeper(local.absolute() / name / SOCKETS_FOLDER, site.cluster).stop_edges(name)
    click.echo(
        f"node: {name} takes no chat clients any more; its replicas go on; "
        f"`tigerchat node start {name}` takes them again"
    )


@command.command("start")
@click.argument("name")
@_LOCAL
def start(name: str, local: Path) -> None:
    """Start the node NAME again after `node stop`, or its edges after `node drain`; wait until it
    serves, or says what has halted."""
    site, _ = _find(local, name)
    keeper = Keeper(local, site.cluster)
    keeper.start(name)
    until(lambda: keeper.child(name).ready, START_S, f"{name} is not ready")
    sockets = local.absolute() / name / SOCKETS_FOLDER
    if not answers_alone(sockets, site.cluster):
        own = Keeper(sockets, site.cluster)
        for edge in own.edges():
            if not edge.wanted:
                own.start(edge.name)
        until(
            lambda: all(edge.ready or edge.halt for edge in own.edges()),
            START_S,
            f"not every edge of {name} is ready",
        )
    click.echo(f"node: {name} is started")


# --- asking ---------------------------------------------------------------------------------------


def _find(local: Path, name: str) -> tuple[Site, int]:
    site = load_site(local / SITE_FILE)
    for node in site.nodes:
        if node.name == name:
            return site, node.index
    names = ", ".join(node.name for node in site.nodes)
    raise ConfigurationError(f"{name} is no node of the site; allowed: {names}")


def _refuse_without_edges(site: Site, local: Path, name: str) -> None:
    """StorageError if the node has no edges that could be stopped alone."""
    if Keeper(local, site.cluster).child(name).pid is None:
        raise StorageError(f"{name} does not run: it has no chat clients")
    sockets = local.absolute() / name / SOCKETS_FOLDER
    if answers_alone(sockets, site.cluster):
        raise StorageError(
            f"the roles of {name} are one process (`start --one-process`), whose edge cannot be "
            f"stopped alone: nothing was changed; `tigerchat node stop {name}` stops all of it"
        )


def _refuse_loss(site: Site, local: Path, index: int) -> None:
    """StorageError if a shard were left without a quorum. Answers within a second, also when
    others are dead or stand still: those do not serve."""
    folder = local.absolute() / site.nodes[index].name
    watch = Watch(
        local / SITE_FILE, site, lambda site: neighbours(folder, site), ROLES, patience_s=LOOK_S
    )
    asyncio.run(watch.poll_beside())
    for shard in watch.console.shards():
        left = short_of(shard, index)
        if left is not None:
            raise StorageError(
                f"without {site.nodes[index].name} shard {shard.number} has {left} of "
                f"{shard.quorum} needed replicas: nothing could be acknowledged; bring the "
                "others up first (`tigerchat status`), or say --force"
            )
