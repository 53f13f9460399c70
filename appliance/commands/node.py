"""`tigerchat node`: stop, kill, drain and start one node of a site on this machine.

Whoever keeps the processes is asked to: the supervisor of the local site for a whole node, that of
the node for its edges. Before a node is stopped it is looked whether each shard keeps a quorum.
"""

import asyncio
import os
import signal
import time
from pathlib import Path
from typing import Any

import click

from appliance.base.errors import ConfigurationError, StorageError
from appliance.cores.console.model import ShardLine
from appliance.drivers.host.neighbours import neighbours
from appliance.drivers.host.node_folder import SOCKETS_FOLDER
from appliance.drivers.network.ask import ask_status
from appliance.drivers.terminal.options import LOCAL_DEFAULT
from appliance.formats.site import SITE_FILE, Site, load_site
from appliance.roles.console.watch import Watch

LOOK_S = 0.4  # for a process to say how it is: whoever does not answer is not counted
STOP_S = 30.0  # for a node to end; its supervisor kills it long before
POLL_S = 0.05
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
    _wish(site, local, {"stop": name})
    deadline = time.monotonic() + STOP_S
    while _child(site, local, name)["pid"] is not None:
        if time.monotonic() > deadline:
            raise StorageError(f"{name} has not ended after {STOP_S:.0f} s: look at its output")
        time.sleep(POLL_S)
    click.echo(f"node: {name} has stopped; `tigerchat node start {name}` starts it again")


@command.command("kill")
@click.argument("name")
@_LOCAL
def kill(name: str, local: Path) -> None:
    """Kill all processes of the node NAME with -9, to see that nothing is lost: the others go on,
    the node is started again by itself and catches up."""
    site, _ = _find(local, name)
    pid = _child(site, local, name)["pid"]
    if pid is None:
        raise StorageError(f"{name} does not run: `tigerchat node start {name}` starts it")
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
    sockets = local.absolute() / name / SOCKETS_FOLDER
    edges = [edge for edge in _edges(site, sockets) if edge["wanted"]]
    for edge in edges:
        _wish(site, sockets, {"stop": edge["name"]})
    click.echo(
        f"node: {name} takes no chat clients any more; its replicas go on; "
        f"`tigerchat node start {name}` takes them again"
    )


@command.command("start")
@click.argument("name")
@_LOCAL
def start(name: str, local: Path) -> None:
    """Start the node NAME again after `node stop`, or its edges after `node drain`."""
    site, _ = _find(local, name)
    _wish(site, local, {"start": name})
    sockets = local.absolute() / name / SOCKETS_FOLDER
    for edge in _edges(site, sockets):
        if not edge["wanted"]:
            _wish(site, sockets, {"start": edge["name"]})
    click.echo(f"node: {name} is started")


# --- asking ---------------------------------------------------------------------------------------


def _find(local: Path, name: str) -> tuple[Site, int]:
    site = load_site(local / SITE_FILE)
    for node in site.nodes:
        if node.name == name:
            return site, node.index
    names = ", ".join(node.name for node in site.nodes)
    raise ConfigurationError(f"{name} is no node of the site; allowed: {names}")


def _wish(site: Site, folder: Path, wish: dict[str, str]) -> None:
    said = ask_status(folder, cluster=site.cluster, shard=0, kind="supervisor", wish=wish)
    if said is None:
        raise StorageError(
            f"nobody keeps the processes of {folder}: only a site that `tigerchat start --local` "
            "runs can be told so; under systemd use systemctl"
        )
    if not said.get("done"):
        (name,) = wish.values()
        raise StorageError(f"{name} was removed, or added since the site was started: restart it")


def _child(site: Site, folder: Path, name: str) -> dict[str, Any]:
    said = ask_status(folder, cluster=site.cluster, shard=0, kind="supervisor")
    children = said["children"] if said is not None else []
    found: dict[str, Any] = next((c for c in children if c["name"] == name), {"pid": None})
    return found


def _edges(site: Site, sockets: Path) -> list[dict[str, Any]]:
    said = ask_status(sockets, cluster=site.cluster, shard=0, kind="supervisor")
    children = said["children"] if said is not None else []
    return [child for child in children if child["name"].startswith("edge-")]


def _refuse_loss(site: Site, local: Path, index: int) -> None:
    """StorageError if a shard were left without a quorum. Answers within a second, also when
    others are dead or stand still: those do not serve."""
    folder = local.absolute() / site.nodes[index].name
    watch = Watch(site, neighbours(folder, site), patience_s=LOOK_S)
    asyncio.run(watch.poll_beside())
    for shard in watch.console.shards():
        left = _serving_without(shard, index)
        if any(m.node == index and not m.standby and not m.removed for m in shard.members):
            if left < shard.quorum:
                raise StorageError(
                    f"without {site.nodes[index].name} shard {shard.number} has {left} of "
                    f"{shard.quorum} needed replicas: nothing could be acknowledged; bring the "
                    "others up first (`tigerchat status`), or say --force"
                )


def _serving_without(shard: ShardLine, index: int) -> int:
    return sum(
        member.normal and not member.standby and not member.removed and member.node != index
        for member in shard.members
    )
