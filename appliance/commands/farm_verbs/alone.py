"""A member of a farm alone, posting to it, and looking into its log."""

import asyncio
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

import click

from appliance.base.errors import ConfigurationError
from appliance.base.json_text import parse_json
from appliance.base.printable import json_line, one_line
from appliance.commands.farm_verbs.options import (
    FILE,
    FOLDER,
    address_said,
    digest_option,
    farm_option,
    password_option,
    pin_option,
    pin_said,
    server_said,
    span_said,
)
from appliance.cores.raft.dial import Challenges, Credentials
from appliance.cores.raft.effects import HardState
from appliance.cores.raft.settings import OWN
from appliance.cores.raft.users import TYPES
from appliance.drivers.host.durable_file import lock_folder
from appliance.drivers.host.log import start_log
from appliance.drivers.network.farm_stream import Route
from appliance.formats.raft_legacy.configuration import endpoint_address
from appliance.roles.farm.client import FarmClient
from appliance.roles.farm.exchange import settings_of
from appliance.roles.farm.link import Keys
from appliance.roles.farm.serve import serve
from appliance.roles.farm.settings import (
    CARRIERS,
    REALM_DEFAULT,
    TLS,
    FarmSettings,
    make_user,
    read_password,
    read_rows,
    read_users,
    timed,
    write_users,
)
from appliance.roles.farm.storage import STORE_FOLDER, FarmStorage, directory_of


@click.command("serve")
@click.option("--folder", type=FOLDER, required=True, help="Where the member keeps its log.")
@click.option("--id", "server_id", type=int, required=True, help="Its number in the farm.")
@click.option(
    "--imported",
    is_flag=True,
    help="All but --id, --listen and --join as `farm import` has put it into the folder; with "
    "--require-server-proof also where the file does not ask for it.",
)
@farm_option
@click.option("--listen", metavar="HOST:PORT", help="Our own socket; must be said.")
@click.option("--endpoint", metavar="tcp://HOST:PORT", help="What members are told; as --listen.")
@click.option("--peer", "peers", multiple=True, metavar="ID=ENDPOINT", help="Another member.")
@click.option("--join", is_flag=True, help="Wait to be added instead of listing peers.")
@click.option("--carrier", type=click.Choice(CARRIERS), default=TLS, show_default=True)
@click.option("--certificate", type=FILE, help="PEM, for TLS.")
@click.option("--key", type=FILE, help="PEM, for TLS.")
@pin_option
@click.option("--proxy", metavar="HOST:PORT", help="Dial through CONNECT of an HTTP proxy.")
@click.option("--proxy-absolute", is_flag=True, help="Ask the proxy for whole URLs; carrier plain.")
@click.option("--require-server-proof", is_flag=True, help="Speak to members that prove theirs.")
@click.option("--user", default="", help="As whom this member logs in to others.")
@password_option
@click.option("--users-file", type=FILE, help="Who may log in here; mode 600. See `farm user`.")
@click.option("--realm", default=REALM_DEFAULT, show_default=True)
@digest_option
@click.option("--election-ms", default="500-1000", show_default=True, metavar="LOW-HIGH")
@click.option("--heartbeat-ms", type=int, default=100, show_default=True)
@click.option("--snapshot-distance", type=click.IntRange(2), help="Entries between snapshots.")
@click.option("--log-level", default="info", show_default=True)
def serve_command(
    folder: Path,
    server_id: int,
    imported: bool,
    name: str,
    listen: str | None,
    endpoint: str | None,
    peers: tuple[str, ...],
    join: bool,
    carrier: str,
    certificate: Path | None,
    key: Path | None,
    pins: tuple[str, ...],
    proxy: str | None,
    proxy_absolute: bool,
    require_server_proof: bool,
    user: str,
    password_file: Path | None,
    users_file: Path | None,
    realm: str,
    algorithms: tuple[str, ...],
    election_ms: str,
    heartbeat_ms: int,
    snapshot_distance: int | None,
    log_level: str,
) -> int:
    """Run one member of a farm, without chat, until it is stopped."""
    if imported:
        address = address_said("--listen", listen) if listen else None
        settings = settings_of(folder.absolute(), server_id, listen=address, join=join)
        insists = require_server_proof or settings.require_server_proof
        return _run(replace(settings, require_server_proof=insists), log_level)
    if listen is None:
        raise ConfigurationError("--listen HOST:PORT is missing; or say --imported")
    raft = timed(
        OWN,
        election_ms=span_said(election_ms),
        heartbeat_ms=heartbeat_ms,
        snapshots=snapshot_distance,
    )
    settings = FarmSettings(
        folder=folder.absolute(),
        id=server_id,
        farm=name,
        listen=address_said("--listen", listen),
        endpoint=endpoint or f"tcp://{listen}",
        peers=tuple(server_said(text) for text in peers),
        join=join,
        carrier=carrier,
        user=user,
        password=read_password(password_file) if password_file else "",
        realm=realm,
        users=read_users(users_file) if users_file else (),
        algorithms=algorithms,
        certificate=certificate,
        key=key,
        pins=dict(pin_said(text) for text in pins),
        proxy=address_said("--proxy", proxy) if proxy else None,
        proxy_absolute=proxy_absolute,
        require_server_proof=require_server_proof,
        raft=raft,
    )
    return _run(settings, log_level)


def _run(settings: FarmSettings, log_level: str) -> int:
    settings.check()
    settings.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    lock_folder(settings.folder)
    log = start_log(f"farm-{settings.id}", log_level)
    return asyncio.run(serve([settings], log))


@click.command("user")
@click.argument("name")
@click.option("--class", "role", type=click.Choice(tuple(TYPES)), default="member")
@click.option("--id", "server_id", type=int, default=0, help="Of the member; 0 for others.")
@click.option("--password-file", type=FILE, required=True, help="Its password; mode 600.")
@click.option("--users-file", type=FILE, required=True, help="Made, or added to; mode 600.")
@click.option("--realm", default=REALM_DEFAULT, show_default=True)
def user_command(
    name: str, role: str, server_id: int, password_file: Path, users_file: Path, realm: str
) -> None:
    """Add a user to a users file; the password itself is not stored there."""
    password = read_password(password_file)
    try:
        row = make_user(name=name, role=role, server_id=server_id, realm=realm, password=password)
    except ValueError as error:
        raise ConfigurationError(f"{error}; a member has an id from 1, others 0") from error
    rows = []
    if users_file.exists():
        rows = [row for row in read_rows(users_file) if row["name"] != name]
    write_users(users_file, [*rows, row])


def _client(
    peers: tuple[str, ...],
    pins: tuple[str, ...],
    name: str,
    user: str,
    password_file: Path | None,
    algorithms: tuple[str, ...],
) -> FarmClient:
    credentials = None
    if user:
        if password_file is None:
            raise ConfigurationError("--user needs --password-file")
        credentials = Credentials(user, read_password(password_file), algorithms)
    pinned = dict(pin_said(text) for text in pins)

    def route_of(server_id: int, endpoint: str) -> Route:
        host, port = endpoint_address(endpoint)
        return Route(host, port, pinned.get(server_id))

    keys = Keys(name, credentials, Challenges())
    return FarmClient([server_said(text) for text in peers], keys, route_of)


@click.command("post")
@click.argument("values", nargs=-1)
@click.option("--peer", "peers", multiple=True, required=True, metavar="ID=ENDPOINT")
@pin_option
@farm_option
@click.option("--user", default="", help="Without: raw frames, on loopback.")
@password_option
@digest_option
@click.option("--seconds", type=float, default=30.0, show_default=True, help="For each value.")
def post_command(
    values: tuple[str, ...],
    peers: tuple[str, ...],
    pins: tuple[str, ...],
    name: str,
    user: str,
    password_file: Path | None,
    algorithms: tuple[str, ...],
    seconds: float,
) -> int:
    """Post values, or lines of standard input; a line of JSON for each that is committed."""
    client = _client(peers, pins, name, user, password_file, algorithms)

    async def post() -> None:
        try:
            for value in values or (line.rstrip("\n") for line in sys.stdin):
                started = time.monotonic()
                leader = await client.post([value.encode()], seconds)
                took_ms = round((time.monotonic() - started) * 1000, 1)
                row = {"value": value, "accepted": True, "leader": leader, "ms": took_ms}
                click.echo(json_line(row))
                sys.stdout.flush()
        finally:
            await client.close()

    asyncio.run(post())
    return 0


@click.command("dump")
@click.option("--folder", type=FOLDER, required=True, help="Of the member.")
@click.option("--state", is_flag=True, help="What the log amounts to, instead of the log.")
@click.option("--farm", "name", default="farm", show_default=True, help="Its name, for --state.")
def dump_command(folder: Path, state: bool, name: str) -> int:
    """Print a member's log, a line of JSON for each entry; it may run meanwhile."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    storage = FarmStorage(folder / STORE_FOLDER, read_only=True)
    if state:
        snapshot = directory_of(name, storage.load(HardState())).snapshot()
        for line in snapshot.decode(errors="replace").splitlines():
            click.echo(_readable(line))
    else:
        for row in storage.rows():
            click.echo(json_line(row))
    storage.close()
    return 0


def _readable(line: str) -> str:
    """A line of a snapshot: JSON of ours, or whatever another make of member put there."""
    try:
        return json_line(parse_json(line))
    except ValueError:
        return one_line(line)
