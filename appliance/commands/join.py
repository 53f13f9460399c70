"""`tigerchat join CODE`: make this machine one of the site whose founder, or node, made the code.

A site that runs has the machine as a standby first. In the place of a lost one it is started, waits
until it holds all that the others have, and votes instead.
"""

import asyncio
from pathlib import Path

import click

from appliance.base.errors import ConfigurationError
from appliance.drivers.files.folders import sync_folder
from appliance.drivers.host.node_folder import FORMATTED_FILE, JOINING_FILE, read_node
from appliance.drivers.host.node_user import work_as_owner
from appliance.drivers.host.process import die_with_parent
from appliance.drivers.network.joining import ask_to_join
from appliance.drivers.nvme.volume import GEOMETRIES
from appliance.drivers.terminal.options import device_option, erase_option
from appliance.formats.join_code import parse_join_code
from appliance.formats.site import SEGMENTS_MAX_LOW, short_id
from appliance.node import founding
from appliance.node.catching_up import start_and_watch
from appliance.node.new_node import PORTS_DEFAULT
from appliance.node.replacing import replace_lost


@click.command("join")
@click.argument("code", required=False)
@click.option("--node-folder", type=click.Path(path_type=Path), required=True, metavar="F")
@click.option("--name", help="Of this machine.")
@click.option("--host", help="Name or address at which the others reach it.")
@click.option("--port", type=click.IntRange(1, 65435), default=PORTS_DEFAULT, show_default=True,
              help="First of the hundred ports of this node.")  # fmt: skip
@click.option("--once", is_flag=True, help="In the place of a lost node: end when this one votes; "
              "else it goes on until Ctrl-C.")  # fmt: skip
@device_option
@erase_option
@click.option("--geometry", type=click.Choice(tuple(GEOMETRIES)), default="production", hidden=True)
@click.option("--brief", is_flag=True, hidden=True)
@click.pass_context
def command(
    ctx: click.Context,
    code: str | None,
    node_folder: Path,
    name: str | None,
    host: str | None,
    port: int,
    once: bool,
    devices: tuple[str, ...],
    erase: int,
    geometry: str,
    brief: bool,
) -> None:
    """Join the site whose founder or node made CODE, and make this machine's volumes.

    A code that was used, was changed or has expired is refused, and nothing is changed here. What
    was begun and cut off goes on without a code.
    """
    work_as_owner(node_folder)
    folder = node_folder.absolute()
    if not founding.is_joining(folder):
        founding.refuse_known(folder)
        if code is None or name is None or host is None:
            raise click.UsageError("say CODE, --name and --host")
        founding.check_devices(devices, geometry, SEGMENTS_MAX_LOW, erase)
        _ask(code, folder, name, host, port)
    let_in = founding.is_joining(folder)
    if not (folder / FORMATTED_FILE).exists():
        founding.make_volumes(
            folder, geometry, devices, erase=erase, brief=brief, new_site=not let_in
        )
    if let_in:
        ctx.exit(_finish(folder, once=once))


def _ask(code: str, folder: Path, name: str, host: str, port: int) -> None:
    """Show the code, and write down what is told."""
    parsed = parse_join_code(code)
    own = founding.describe(folder, name, host, port)
    click.echo(f"join: asking {parsed.host}:{parsed.port}; a new site is formed when all have come")
    told = asyncio.run(ask_to_join(parsed, own))
    founding.take(folder, told, own["public_key"], parsed.cluster)
    click.echo(f"join: this machine is node {told['index']} of site "
               f"{short_id(parsed.cluster)}")  # fmt: skip


def _finish(folder: Path, *, once: bool) -> int:
    """What a site that runs makes of a standby; the exit code."""
    node, path = read_node(folder), folder / JOINING_FILE
    lost = path.read_text().strip()

    def replace() -> None:
        asyncio.run(replace_lost(node, lost))
        click.echo(f"join: {node.node.name} votes in the place of {lost}, which is out")
        _done(path)

    if not lost:
        _done(path)
        click.echo(
            f"join: {node.node.name} is a standby: start it with `tigerchat start --node-folder "
            f"{folder}`; `tigerchat member promote {node.node.name} --retire NODE` lets it vote"
        )
        return 0
    if lost == node.node.name:
        raise ConfigurationError(f"{path} names this node: remove it, and start the node")
    die_with_parent()
    return start_and_watch(node, node.shards, verb="join", once=once, then=replace)


def _done(path: Path) -> None:
    path.unlink()
    sync_folder(path.parent)
