"""`tigerchat upgrade`: the nodes of a site are run by this program from now on, one after the
other, while the site serves.

upgrade [NAME ...]            of a local site: each node, or those that are named
upgrade --back [NAME ...]     what ran them before runs them again
upgrade --node-folder F       of the node of this machine, which a service manager restarts
"""

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

import click

from appliance.base.errors import ConfigurationError, StorageError
from appliance.base.printable import counted
from appliance.drivers.host.durable_file import lock_folder
from appliance.drivers.host.node_folder import FORMATTED_FILE, SOCKETS_FOLDER, read_node
from appliance.drivers.host.process import own_command, own_source
from appliance.drivers.host.resources import program as own_program
from appliance.drivers.terminal.options import LOCAL_DEFAULT
from appliance.formats.site import SITE_FILE, Site, load_site
from appliance.formats.status.supervisor import SupervisorStatus
from appliance.formats.volume_level import VOLUME_LEVEL
from appliance.node.child import Program
from appliance.node.start import check_takes
from appliance.node.upgrade import KeptNode, KeptRestart, UnitRestart, Upgrade
from appliance.roles.operator.keeping import Keeper

LOCK = ".upgrade.lock"
PATIENCE_S = 300.0
TRIES, PAUSE_S = 3, 0.5  # to read what a node writes meanwhile
RESTART = "systemctl restart tigerchat"
_FOLDER = click.Path(path_type=Path)


@click.command("upgrade")
@click.argument("names", nargs=-1, metavar="[NODE]...")
@click.option(
    "--local",
    type=_FOLDER,
    metavar="DIR",
    help=f"Nodes of the local site in DIR; {LOCAL_DEFAULT} if nothing else is said.",
)
@click.option("--node-folder", type=_FOLDER, metavar="F", help="The node of this machine.")
@click.option(
    "--restart",
    metavar="COMMAND",
    help=f"With --node-folder: what starts the node anew by this program; {RESTART}.",
)
@click.option("--back", is_flag=True, help="With --local: have them run what they ran before.")
@click.option(
    "--no-way-back",
    is_flag=True,
    help="Also if this program writes into volumes what that of now does not know.",
)
@click.option("--force", is_flag=True, help="Also where others are down, or behind, or too few.")
@click.option(
    "--patience",
    type=click.FloatRange(0),
    default=PATIENCE_S,
    show_default=True,
    metavar="SECONDS",
    help="How long each step may take before it is given up.",
)
def command(
    names: tuple[str, ...],
    local: Path | None,
    node_folder: Path | None,
    restart: str | None,
    back: bool,
    no_way_back: bool,
    force: bool,
    patience: float,
) -> None:
    """Have the nodes of a site run by this program, one after the other, while it serves.

    A node is stopped only while the others are there, level and enough. It sends its clients to
    them, and lets another primary lead before it goes. The next one follows when it is back; at one
    that does not come back the upgrade ends with exit code 1. The same words begin again where it
    stood.
    """
    if node_folder is not None:
        if local is not None or back or names:
            raise click.UsageError(
                "--node-folder upgrades the node of this machine alone, without --local, --back "
                "or names; for the way back run the former program's `upgrade` there"
            )
        _upgrade_node(node_folder.absolute(), restart or RESTART, no_way_back, force, patience)
        return
    if restart is not None:
        raise click.UsageError("--restart belongs to --node-folder")
    folder = (local if local is not None else Path(LOCAL_DEFAULT)).absolute()
    _upgrade_local(folder, names, back, no_way_back, force, patience)


def _upgrade_local(
    folder: Path,
    names: tuple[str, ...],
    back: bool,
    no_way_back: bool,
    force: bool,
    patience: float,
) -> None:
    site = load_site(folder / SITE_FILE)
    keeper = Keeper(folder, site.cluster)
    kept = keeper.told()
    if not kept.program:
        raise StorageError(
            f"what keeps the nodes of {folder} is of a version that cannot start another program: "
            "nothing was changed; stop the site and start it by this program"
        )
    nodes = _kept_nodes(site, folder, kept)
    chosen = _chosen(nodes, names)
    program = None if back else Program(own_command(), own_source())
    upgrade = Upgrade(
        site,
        nodes,
        program=None if back else own_program(),
        restart=KeptRestart(keeper, program, _say),
        patience_s=patience,
        force=force,
        say=_say,
    )
    upgrade.check_supervised()
    with _alone(folder):
        if back:
            replaced = {child.name for child in kept.children if child.replaced}
            _go_back(upgrade, [node for node in chosen if node.name in replaced], len(replaced))
            return
        upgrade.poll()
        _check(upgrade, chosen, no_way_back)
        upgrade.run(chosen)
        upgrade.poll()
        _tell_end(upgrade, kept.program)


def _go_back(upgrade: Upgrade, chosen: list[KeptNode], replaced: int) -> None:
    if replaced == len(upgrade.nodes):
        raise StorageError(
            "there is no way back any more: all nodes have been switched, and their log may hold "
            "what the former program does not know; nothing was changed"
        )
    upgrade.run(chosen)
    _say(f"{counted(len(chosen), 'node')} went back to what they ran before")


def _upgrade_node(
    folder: Path, restart: str, no_way_back: bool, force: bool, patience: float
) -> None:
    if not (folder / FORMATTED_FILE).exists():
        raise ConfigurationError(f"{folder} is no folder of a formatted node: correct the path")
    known = read_node(folder)
    node = KeptNode(folder, known.node.name, known.settings.index)
    upgrade = Upgrade(
        known.site,
        [node],
        program=own_program(),
        restart=UnitRestart(restart, _say),
        patience_s=patience,
        force=force,
        say=_say,
    )
    upgrade.check_supervised()
    Keeper(folder / SOCKETS_FOLDER, known.site.cluster).told()
    with _alone(folder):
        upgrade.poll()
        _check(upgrade, [node], no_way_back)
        upgrade.run([node])
    _say(f"{node.name} runs {own_program()}; now the next machine")


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Two upgrades at once could stop two nodes."""
    held = lock_folder(folder, LOCK)
    try:
        yield
    finally:
        os.close(held)


def _check(upgrade: Upgrade, chosen: list[KeptNode], no_way_back: bool) -> None:
    """What is known before anything is changed: this program takes what lies there."""
    upgrade.check_levels(VOLUME_LEVEL, no_way_back=no_way_back)
    for node in chosen:
        for tries_left in reversed(range(TRIES)):
            try:
                check_takes(node.folder)
                break
            except (ConfigurationError, StorageError) as error:
                if not tries_left:
                    raise StorageError(
                        f"this program would not start on {node.folder}, nothing was changed: "
                        f"{error}"
                    ) from error
                time.sleep(PAUSE_S)  # who writes there just now has done so then


def _kept_nodes(site: Site, folder: Path, kept: SupervisorStatus) -> list[KeptNode]:
    names = {child.name for child in kept.children}
    return [
        KeptNode(folder / node.name, node.name, node.index)
        for node in site.nodes
        if node.name in names
    ]


def _chosen(nodes: list[KeptNode], names: tuple[str, ...]) -> list[KeptNode]:
    known = {node.name: node for node in nodes}
    for name in names:
        if name not in known:
            raise ConfigurationError(
                f"{name} is no node of the site that runs; allowed: {', '.join(known)}"
            )
    return [node for node in nodes if not names or node.name in names]


def _tell_end(upgrade: Upgrade, keeps: str) -> None:
    """`keeps`: the program that keeps the nodes."""
    nodes = upgrade.nodes
    done = [node for node in nodes if upgrade.runs(node) == own_program()]
    _say(f"{len(done)} of {counted(len(nodes), 'node')} run {own_program()}")
    if len(done) == len(nodes) and keeps != own_program():
        _say(f"the process that keeps them runs {keeps} until the site is started anew")
    if len(done) < len(nodes):
        _say("`tigerchat upgrade` goes on with the others, `upgrade --back` goes back")


def _say(line: str) -> None:
    click.echo(f"upgrade: {line}")
