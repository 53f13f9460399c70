"""`tigerchat join CODE`: make this machine one of the site whose founder made the code."""

import asyncio
from pathlib import Path

import click

from appliance.drivers.network.joining import ask_to_join
from appliance.drivers.nvme.volume import GEOMETRIES
from appliance.drivers.terminal.options import device_option, erase_option
from appliance.formats.join_code import parse_join_code
from appliance.formats.site import SEGMENTS_MAX_LOW
from appliance.node import founding
from appliance.node.new_node import PORTS_DEFAULT


@click.command("join")
@click.argument("code")
@click.option("--node-folder", type=click.Path(path_type=Path), required=True, metavar="F")
@click.option("--name", required=True, help="Of this machine.")
@click.option("--host", required=True, help="Name or address at which the others reach it.")
@click.option("--port", type=click.IntRange(1, 65435), default=PORTS_DEFAULT, show_default=True,
              help="First of the hundred ports of this node.")  # fmt: skip
@device_option
@erase_option
@click.option("--geometry", type=click.Choice(tuple(GEOMETRIES)), default="production", hidden=True)
def command(
    code: str,
    node_folder: Path,
    name: str,
    host: str,
    port: int,
    devices: tuple[str, ...],
    erase: int,
    geometry: str,
) -> None:
    """Join the new site whose founder made CODE, and make this machine's volumes.

    A code that was used, was changed or has expired is refused, and nothing is formed here.
    """
    parsed = parse_join_code(code)
    folder = node_folder.absolute()
    founding.refuse_known(folder)
    founding.check_devices(devices, geometry, SEGMENTS_MAX_LOW, erase)
    own = founding.describe(folder, name, host, port)
    click.echo(f"join: asking {parsed.host}:{parsed.port}; the site is formed when all have come")
    told = asyncio.run(ask_to_join(parsed, own))
    founding.take(folder, told, own["public_key"])
    click.echo(f"join: this machine is node {told['index']} of site "
               f"{founding.short(parsed.cluster)}")  # fmt: skip
    founding.make_volumes(folder, geometry, devices, erase=erase)
