"""`tigerchat node`: stop, kill, drain and start a node of a site on this machine, or one of its
processes, and let another replica lead.

Whoever keeps the processes is asked to: the supervisor of the local site for a whole node, that of
the node for its processes. Before anything is stopped it is looked whether each shard keeps a
quorum, by the same table as the console's page. Nothing is told as done before whoever keeps the
process has said that it is.
"""

import os
import signal
from pathlib import Path

import click

from appliance.base.errors import ConfigurationError, StorageError
from appliance.cores.console.about import About
from appliance.cores.console.stakes import REPLICA, loss
from appliance.drivers.terminal.options import (
    LOCAL_DEFAULT,
    local_site_option,
    node_options_saying,
)
from appliance.formats.site import SITE_FILE, Site, load_site
from appliance.node import node_acts
from appliance.node.acting import ActSite, act_site_of
from appliance.roles.operator.keeping import STOP_S, Keeper, answers_alone, until

FORCE = ", or say --force"
_NODE_OPTIONS = node_options_saying(
    node="A site on several machines: the node in F, or one whose folder lies beside it."
)
_PROCESS = click.option(
    "--process", metavar="NAME", help="One process alone, as `tigerchat status` names it."
)


@click.group("node")
def command() -> None:
    """Stop, kill, drain and start a node of a site on this machine, or one of its processes; let
    another replica lead."""


@command.command("stop")
@click.argument("name")
@_NODE_OPTIONS
@_PROCESS
@click.option("--force", is_flag=True, help="Also when a shard is left without a quorum.")
def stop(
    name: str, local: Path | None, node_folder: Path | None, process: str | None, force: bool
) -> None:
    """Stop the node NAME until `node start NAME`, or one process of it; refused if a shard would
    lose its quorum, or clients their last edge."""
    acted, index = _found(local, node_folder, name)
    if process is not None:
        node_acts.stop(acted, About(index, process), forced=force, hint=FORCE)
        click.echo(f"node: {process} of {name} has stopped, until `tigerchat node start`")
        return
    keeper = _keeper(acted, node_folder)
    if not force:
        acted.refuse_for(lambda seen: loss(seen, index), FORCE)
    keeper.stop(name)
    until(lambda: keeper.child(name).has_ended, STOP_S, f"{name} has not ended")
    acted.record("stop", About(index), f"stop {name}")
    click.echo(f"node: {name} has stopped; `tigerchat node start {name}` starts it again")


@command.command("kill")
@click.argument("name")
@local_site_option()
def kill(name: str, local: Path | None) -> None:
    """Kill all processes of the node NAME with -9, to see that nothing is lost: the others go on,
    the node is started again by itself and catches up."""
    acted, _ = _found(local, None, name)
    child = _keeper(acted, None).child(name)
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
@_NODE_OPTIONS
@click.option("--force", is_flag=True, help="Also when no other edge serves.")
def drain(name: str, local: Path | None, node_folder: Path | None, force: bool) -> None:
    """Send the chat clients of NAME to other nodes; its replicas go on, until `node undrain`."""
    acted, index = _found(local, node_folder, name)
    node_acts.drain(acted, About(index), forced=force, hint=FORCE)
    click.echo(
        f"node: {name} takes no chat clients any more; its replicas go on; "
        f"`tigerchat node undrain {name}` takes them again"
    )


@command.command("undrain")
@click.argument("name")
@_NODE_OPTIONS
def undrain(name: str, local: Path | None, node_folder: Path | None) -> None:
    """Let NAME take chat clients again after `node drain`; wait until its edges serve."""
    acted, index = _found(local, node_folder, name)
    node_acts.undrain(acted, About(index))
    click.echo(f"node: {name} takes chat clients again")


@command.command("start")
@click.argument("name")
@_NODE_OPTIONS
@_PROCESS
def start(name: str, local: Path | None, node_folder: Path | None, process: str | None) -> None:
    """Start the node NAME again after `node stop`, or its edges after `node drain`, or one process;
    wait until it serves, or says what has halted."""
    acted, index = _found(local, node_folder, name)
    if process is not None:
        node_acts.start(acted, About(index, process))
        click.echo(f"node: {process} of {name} is started")
        return
    keeper = _keeper(acted, node_folder)
    keeper.start(name)
    until(lambda: keeper.child(name).ready, node_acts.START_S, f"{name} is not ready")
    if not answers_alone(node_acts.own_keeper(acted).folder, acted.site.cluster):
        node_acts.take_clients(acted, About(index))
    acted.record("start", About(index), f"start {name}")
    click.echo(f"node: {name} is started")


@command.command("step-down")
@click.argument("name")
@_NODE_OPTIONS
@click.option("--shard", type=int, metavar="S", help="Of this shard alone.")
def step_down(name: str, local: Path | None, node_folder: Path | None, shard: int | None) -> None:
    """Let another replica lead each shard that NAME leads; NAME goes on as a backup."""
    acted, index = _found(local, node_folder, name)
    snapshot = acted.seen()
    led = [line.number for line in snapshot.shards if line.primary and line.primary.node == index]
    if shard is not None:
        if shard not in range(len(snapshot.shards)):
            raise ConfigurationError(
                f"the site has no shard {shard}; allowed: 0 to {len(snapshot.shards) - 1}"
            )
        led = [shard]
    if not led:
        raise StorageError(f"{name} leads no shard: look with `tigerchat status`")
    for number in led:
        node_acts.step_down(acted, About(index, shard=number))
        now = acted.seen().shards[number].primary
        who = acted.site.nodes[now.node].name if now is not None else "another replica"
        click.echo(f"node: {who} leads shard {number}")


@command.command("scrub")
@click.argument("name")
@_NODE_OPTIONS
@click.option("--shard", type=int, metavar="S", help="Of this shard alone.")
def scrub(name: str, local: Path | None, node_folder: Path | None, shard: int | None) -> None:
    """Have each replica of NAME read all that it holds, now, and wait until it has: what is broken
    is found, and mended from peers. By itself it reads everything again and again, at leisure."""
    acted, index = _found(local, node_folder, name)
    shards = [of.number for of in acted.site.shards_of(index)]
    if shard is not None:
        if shard not in shards:
            raise ConfigurationError(f"{name} has no replica of shard {shard}; allowed: {shards}")
        shards = [shard]
    for number in shards:
        node_acts.scrub(acted, About(index, f"{REPLICA}{number}"))
        click.echo(f"node: {name} has read all that its replica of shard {number} holds")


# --- asking ---------------------------------------------------------------------------------------


def _found(local: Path | None, node_folder: Path | None, name: str) -> tuple[ActSite, int]:
    """Where the node is, and its number in the site file."""
    folder = (node_folder or local or Path(LOCAL_DEFAULT)).absolute()
    site = load_site(folder / SITE_FILE)
    index = _find(site, name)
    return act_site_of(folder, site, index, is_local=node_folder is None), index


def _find(site: Site, name: str) -> int:
    for node in site.nodes:
        if node.name == name:
            return node.index
    names = ", ".join(node.name for node in site.nodes)
    raise ConfigurationError(f"{name} is no node of the site; allowed: {names}")


def _keeper(acted: ActSite, node_folder: Path | None) -> Keeper:
    """Of whole nodes; whoever keeps a node alone is asked by systemctl."""
    if node_folder is not None:
        raise StorageError(
            f"nobody keeps the node in {node_folder}: under systemd use systemctl; a process of it "
            "is named with --process"
        )
    return Keeper(acted.folder, acted.site.cluster)
