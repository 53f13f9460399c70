"""`tigerchat found`: begin a site of machines of their own; others join it by a code each."""

import asyncio
import secrets
from pathlib import Path

import click

from appliance.base.limits import REPLICAS_MAX, SEGMENTS_MAX_DEFAULT
from appliance.drivers.host.node_folder import TLS_CERTIFICATE_FILE, TLS_KEY_FILE
from appliance.drivers.host.node_user import work_as_owner
from appliance.drivers.network.joining import Gathering
from appliance.drivers.nvme.volume import GEOMETRIES
from appliance.drivers.terminal.options import accept_two_option, device_option, erase_option
from appliance.formats.join_code import SECRET_SIZE, JoinCode, encode_join_code
from appliance.formats.site import SEGMENTS_MAX_HIGH, SEGMENTS_MAX_LOW, short_id
from appliance.node import founding
from appliance.node.new_node import PORTS_DEFAULT, fresh_id, refuse_two
from appliance.roles.farm.node_files import FARM_PASSWORD_SIZE, make_farm_key, told_of_founding


@click.command("found")
@click.option("--node-folder", type=click.Path(path_type=Path), required=True, metavar="F")
@click.option("--name", required=True, help="Of this machine.")
@click.option("--host", required=True, help="Name or address at which the others reach it.")
@click.option("--port", type=click.IntRange(1, 65435), default=PORTS_DEFAULT, show_default=True,
              help="First of the hundred ports of this node.")  # fmt: skip
@click.option("--nodes", type=click.IntRange(1, REPLICAS_MAX), default=3, show_default=True)
@accept_two_option
@click.option("--shards", type=click.IntRange(1, 40), default=1, show_default=True)
@click.option(
    "--segments-max",
    type=click.IntRange(SEGMENTS_MAX_LOW, SEGMENTS_MAX_HIGH),
    default=SEGMENTS_MAX_DEFAULT,
    show_default=True,
    help="Extents of 23 MiB that each shard may come to hold, on every machine.",
)
@click.option("--minutes", type=click.FloatRange(0, 1440), default=60, show_default=True,
              help="For the others to come; then their codes expire.")  # fmt: skip
@device_option
@erase_option
@click.option("--geometry", type=click.Choice(tuple(GEOMETRIES)), default="production", hidden=True)
def command(
    node_folder: Path,
    name: str,
    host: str,
    port: int,
    nodes: int,
    accept_two_replicas: bool,
    shards: int,
    segments_max: int,
    minutes: float,
    devices: tuple[str, ...],
    erase: int,
    geometry: str,
) -> None:
    """Begin a new site: print a code for each other machine, wait until all have joined.

    Each code is used once. When all have come, every machine makes its volumes. A site of one
    machine (--nodes 1) waits for nobody.
    """
    refuse_two(nodes, is_accepted=accept_two_replicas)
    work_as_owner(node_folder)
    folder = node_folder.absolute()
    founding.refuse_known(folder)
    founding.check_devices(devices, geometry, segments_max, erase)
    own = founding.describe(folder, name, host, port)
    jwks, cluster = founding.make_token_key(folder), fresh_id()
    farm_key, farm_password = make_farm_key(folder), secrets.token_urlsafe(FARM_PASSWORD_SIZE)
    keys = [secrets.token_bytes(SECRET_SIZE) for _ in range(nodes - 1)]

    async def form(rows: list[founding.Row]) -> list[founding.Row]:
        site = founding.form_site(
            cluster,
            [own, *rows],
            shards=shards,
            segments_max=segments_max,
            farm_key=farm_key.public,
        )
        farm = told_of_founding(site, farm_key, farm_password)
        answers = [founding.answer(site, jwks, index, farm) for index in range(nodes)]
        founding.take(folder, answers[0], own["public_key"], cluster, farm_password)
        return answers[1:]

    if nodes == 1:
        asyncio.run(form([]))
    else:
        waiting = Gathering(
            folder / TLS_CERTIFICATE_FILE,
            folder / TLS_KEY_FILE,
            keys,
            cluster=cluster,
            seconds=minutes * 60,
            check=lambda row, others: founding.check_description(row, [own, *others]),
            told=lambda line: click.echo(f"found: {line}"),
            expired="the codes have expired before all machines came: found the site anew; nothing "
            "was formed",
        )
        port_of_codes, pin = port + founding.JOIN_PORT, founding.fingerprint(folder)

        def listens() -> None:
            click.echo(f"found: site {short_id(cluster)}; on each other machine, within "
                       f"{minutes:g} minutes, one of:")  # fmt: skip
            for key in keys:
                code = JoinCode(host, port_of_codes, cluster, pin, key)
                click.echo(f"tigerchat join {encode_join_code(code)}")

        asyncio.run(waiting.gather(host, port_of_codes, form, listens))
        click.echo("found: all have come; the site is formed")
    founding.make_volumes(folder, geometry, devices, erase=erase)
