"""A farm that begins with one member and grows by codes; on other machines, and after a loss."""

import asyncio
import os
import sys
from pathlib import Path

import click

from appliance.base.errors import ConfigurationError
from appliance.commands.farm_verbs.options import (
    FILE,
    FOLDER,
    address_said,
    farm_option,
    server_said,
)
from appliance.cores.raft.invitation import parse_code
from appliance.drivers.host.durable_file import lock_folder, write_durable
from appliance.drivers.host.node_folder import FARM_FOLDER, FARM_USERS_FILE, read_node
from appliance.drivers.host.node_user import work_as_owner
from appliance.roles.farm.exchange import (
    USERS_FILE,
    exported,
    read_export,
    settings_of,
    unpack,
    write_export,
)
from appliance.roles.farm.founding import found, join, make_code
from appliance.roles.farm.node_files import farm_settings
from appliance.roles.farm.recovery import go_on_alone
from appliance.roles.farm.settings import (
    PLAIN,
    TLS,
    read_password,
    read_rows,
)
from appliance.roles.farm.storage import STORE_FOLDER


@click.command("init")
@click.option("--folder", type=FOLDER, required=True, help="Of its first member; made.")
@click.option("--listen", required=True, metavar="HOST:PORT", help="Its socket.")
@click.option("--endpoint", metavar="tcp://HOST:PORT", help="What members are told; as --listen.")
@farm_option
@click.option("--carrier", type=click.Choice((TLS, PLAIN)), default=TLS, show_default=True)
def init_command(folder: Path, listen: str, endpoint: str | None, name: str, carrier: str) -> None:
    """Make the first member of a new farm; others join it by code."""
    address = address_said("--listen", listen)
    _make_folder(folder)
    found(folder.absolute(), name, address, endpoint or f"tcp://{listen}", carrier)
    click.echo(f"start it: tigerchat farm serve --imported --folder {folder} --id 1")


@click.command("invite")
@click.option("--folder", type=FOLDER, required=True, help="Of a member that runs.")
@click.option("--id", "server_id", type=int, required=True, help="Its number in the farm.")
@click.option("--minutes", type=click.IntRange(1, 10_080), default=60, show_default=True)
def invite_command(folder: Path, server_id: int, minutes: int) -> None:
    """Print a code with which one machine may join, once: keep it like a password."""
    settings = settings_of(folder.absolute(), server_id, listen=None, join=False)
    click.echo(make_code(settings, minutes).text())


@click.command("join")
@click.argument("code")
@click.option("--folder", type=FOLDER, required=True, help="Of the new member; made.")
@click.option("--endpoint", required=True, metavar="tcp://HOST:PORT", help="Where it is reached.")
def join_command(code: str, folder: Path, endpoint: str) -> None:
    """Fetch user, number and settings with a code from `farm invite`; the secret counts once."""
    parsed = parse_code(code if code != "-" else sys.stdin.readline().strip())
    server_said(f"1={endpoint}")
    _make_folder(folder)
    server_id = asyncio.run(join(parsed, folder.absolute(), endpoint))
    click.echo(
        f"start it: tigerchat farm serve --imported --join --folder {folder} --id {server_id}"
    )


def _make_folder(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    os.close(lock_folder(folder))


@click.command("recover")
@click.option("--folder", type=FOLDER, help="Of a member that runs alone, without chat.")
@click.option("--id", "server_id", type=int, help="Its number in the farm, with --folder.")
@click.option("--node-folder", type=FOLDER, metavar="F", help="Of a node of a site.")
@click.option(
    "--majority-is-lost-for-good",
    "sure",
    is_flag=True,
    help="No other member of the old farm will ever run again on its old log.",
)
def recover_command(
    folder: Path | None, server_id: int | None, node_folder: Path | None, sure: bool
) -> None:
    """Let one stopped member go on as the whole farm, when the majority is lost for good."""
    if node_folder is not None:
        work_as_owner(node_folder)
        node = read_node(node_folder.absolute())
        os.close(lock_folder(node.path))
        address, own_id = node.path / FARM_FOLDER / STORE_FOLDER, node.node.farm_id
    elif folder is not None and server_id is not None:
        os.close(lock_folder(folder))
        address, own_id = folder / STORE_FOLDER, server_id
    else:
        raise click.UsageError("say --node-folder F, or --folder and --id")
    if not sure:
        raise ConfigurationError(
            "recovery forgets all that only the lost members had, and two farms are the end if one "
            "of them comes back on its old log; if none ever will, say --majority-is-lost-for-good"
        )
    done = go_on_alone(address, own_id)
    click.echo(f"member {own_id} is the whole farm from index {done.index}, term {done.term} on")
    if done.uncommitted:
        click.echo(
            f"WARNING: {done.uncommitted} entries count now that nobody may have said yes to"
        )
    for server in done.lost:
        click.echo(
            f"WARNING: member {server.id} at {server.endpoint} must never run on its old log: "
            "empty its folder, then let it join again"
        )


@click.command("export")
@click.argument("file", type=FILE)
@click.option("--folder", type=FOLDER, help="Of a member that was imported.")
@click.option("--id", "server_id", type=int, help="Its number in the farm, with --folder.")
@click.option("--node-folder", type=FOLDER, metavar="F", help="Of a node of a site.")
@click.option("--secrets", type=FILE, help="The member's own password, into a file of its own.")
def export_command(
    file: Path,
    folder: Path | None,
    server_id: int | None,
    node_folder: Path | None,
    secrets: Path | None,
) -> None:
    """Write how this farm is configured into FILE, for other machines; mode 600."""
    if node_folder is not None:
        node = read_node(node_folder.absolute())
        settings, pin = farm_settings(node), node.node.spki
        users = read_rows(node.path / FARM_USERS_FILE)
    elif folder is not None and server_id is not None:
        settings = settings_of(folder.absolute(), server_id, listen=None, join=False)
        pin = settings.pins.get(server_id, b"")
        users = read_rows(folder / USERS_FILE)
    else:
        raise click.UsageError("say --node-folder F, or --folder and --id")
    write_export(file, exported(settings, pin, users))
    if secrets is not None:
        write_durable(secrets, settings.password + "\n", mode=0o600)


@click.command("import")
@click.argument("file", type=FILE)
@click.option("--folder", type=FOLDER, required=True, help="Made ready for `serve --imported`.")
@click.option("--secrets", type=FILE, help="The member's password, as export wrote it.")
def import_command(file: Path, folder: Path, secrets: Path | None) -> None:
    """Put what `farm export` wrote into a folder; a member's certificate goes there by hand."""
    content = read_export(file)
    password = read_password(secrets) if secrets is not None else ""
    _make_folder(folder)
    unpack(folder, content, password)
