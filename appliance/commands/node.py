"""`tigerchat node`: stop, kill, drain and start one node of a site on this machine.

Whoever keeps the processes is asked to: the supervisor of the local site for a whole node, that of
the node for its edges. Before a node is stopped it is looked whether each shard keeps a quorum.
Nothing is told as done before whoever keeps the process has said that it is.
"""

import asyncio
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import click

from appliance.base.errors import ConfigurationError, StorageError
from appliance.cores.console.model import ShardLine
from appliance.drivers.host.neighbours import neighbours
from appliance.drivers.host.node_folder import SOCKETS_FOLDER
from appliance.drivers.network.ask import ask_status, status_of
from appliance.drivers.terminal.options import LOCAL_DEFAULT
from appliance.drivers.terminal.waiting import Waiting
from appliance.formats.site import SITE_FILE, Site, load_site
from appliance.formats.status.edge import EdgeStatus
from appliance.formats.status.supervisor import ChildStatus, SupervisorStatus
from appliance.node.catalogue import ROLES
from appliance.roles.console.watch import Watch

LOOK_S = 0.4  # for a process to say how it is: whoever does not answer is not counted
ANSWER_S = 5.0  # for a supervisor that is there and busy
STOP_S = 30.0  # for a process to end; its supervisor kills it long before
START_S = 60.0  # for a process to serve, or to be told as halted
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
    _until(lambda: _child(site, local, name).has_ended, STOP_S, f"{name} has not ended")
    click.echo(f"node: {name} has stopped; `tigerchat node start {name}` starts it again")


@command.command("kill")
@click.argument("name")
@_LOCAL
def kill(name: str, local: Path) -> None:
    """Kill all processes of the node NAME with -9, to see that nothing is lost: the others go on,
    the node is started again by itself and catches up."""
    site, _ = _find(local, name)
    child = _child(site, local, name)
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
    sockets = local.absolute() / name / SOCKETS_FOLDER
    _refuse_without_edges(site, local, name)
    for edge in _edges(site, sockets):
        if edge.wanted:
            _wish(site, sockets, {"stop": edge.name})
    _until(
        lambda: all(edge.has_ended for edge in _edges(site, sockets)),
        STOP_S,
        f"not every edge of {name} has ended",
    )
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
    _wish(site, local, {"start": name})
    _until(lambda: bool(_child(site, local, name).ready), START_S, f"{name} is not ready")
    sockets = local.absolute() / name / SOCKETS_FOLDER
    if not _answers_alone(site, sockets):
        for edge in _edges(site, sockets):
            if not edge.wanted:
                _wish(site, sockets, {"start": edge.name})
        _until(
            lambda: all(edge.ready or edge.halt for edge in _edges(site, sockets)),
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


def _asked(site: Site, folder: Path) -> SupervisorStatus | None:
    return status_of(SupervisorStatus, folder, cluster=site.cluster, timeout_s=ANSWER_S)


def _wish(site: Site, folder: Path, wish: dict[str, str]) -> None:
    said = ask_status(
        folder,
        cluster=site.cluster,
        shard=0,
        kind=SupervisorStatus.socket_kind(),
        timeout_s=ANSWER_S,
        wish=wish,
    )
    if said is None:
        raise _nobody(folder)
    if said.get("ending"):
        raise StorageError("the site is being stopped: start it again first")
    if not said.get("done"):
        (name,) = wish.values()
        raise StorageError(f"{name} was removed, or added since the site was started: restart it")


def _nobody(folder: Path) -> StorageError:
    return StorageError(
        f"nobody keeps the processes of {folder}: only a site that `tigerchat start --local` "
        "runs can be told so; under systemd use systemctl"
    )


def _children(site: Site, folder: Path) -> list[ChildStatus]:
    """What the supervisor at `folder` keeps; StorageError when none answers."""
    said = _asked(site, folder)
    if said is None:
        raise _nobody(folder)
    return said.children


def _child(site: Site, folder: Path, name: str) -> ChildStatus:
    for child in _children(site, folder):
        if child.name == name:
            return child
    raise StorageError(f"{name} was removed, or added since the site was started: restart it")


def _edges(site: Site, sockets: Path) -> list[ChildStatus]:
    return [child for child in _children(site, sockets) if child.name.startswith("edge-")]


def _answers_alone(site: Site, sockets: Path) -> bool:
    """Whether the node serves without a supervisor of its own: all its roles are one process."""
    if _asked(site, sockets) is not None:
        return False
    kind = EdgeStatus.socket_kind()
    return ask_status(sockets, cluster=site.cluster, shard=0, kind=kind) is not None


def _refuse_without_edges(site: Site, local: Path, name: str) -> None:
    """StorageError if the node has no edges that could be stopped alone."""
    if _child(site, local, name).pid is None:
        raise StorageError(f"{name} does not run: it has no chat clients")
    sockets = local.absolute() / name / SOCKETS_FOLDER
    if _answers_alone(site, sockets):
        raise StorageError(
            f"the roles of {name} are one process (`start --one-process`), whose edge cannot be "
            f"stopped alone: nothing was changed; `tigerchat node stop {name}` stops all of it"
        )


def _until(condition: Callable[[], bool], seconds: float, what: str) -> None:
    """Wait for `condition`; StorageError says `what` after `seconds`. Whoever is asked may be too
    busy to answer once; that it never answers is told, too."""
    deadline = time.monotonic() + seconds
    why = ""
    with Waiting("node") as waiting:
        waiting.on(what)
        while True:
            try:
                if condition():
                    return
                why = ""
            except StorageError as error:
                why = f": {error}"
            if time.monotonic() > deadline:
                raise StorageError(f"{what} after {seconds:.0f} s: look at its output{why}")
            time.sleep(POLL_S)


def _refuse_loss(site: Site, local: Path, index: int) -> None:
    """StorageError if a shard were left without a quorum. Answers within a second, also when
    others are dead or stand still: those do not serve."""
    folder = local.absolute() / site.nodes[index].name
    watch = Watch(
        local / SITE_FILE, site, lambda site: neighbours(folder, site), ROLES, patience_s=LOOK_S
    )
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
