"""`tigerchat farm`: a member of a farm alone, posting to it, and looking into its log."""

import asyncio
import os
import signal
import sys
import time
from pathlib import Path

import click

from appliance.base.errors import ConfigurationError, FarmFrameError, StorageError
from appliance.base.json_text import parse_json
from appliance.base.printable import json_line, one_line
from appliance.cores.raft.dial import Challenges, Credentials
from appliance.cores.raft.digest import ALGORITHMS
from appliance.cores.raft.effects import HardState
from appliance.cores.raft.invitation import parse_code
from appliance.cores.raft.settings import OWN
from appliance.cores.raft.users import TYPES
from appliance.drivers.host.durable_file import lock_folder, write_durable
from appliance.drivers.host.log import start_log
from appliance.drivers.host.node_folder import FARM_FOLDER, FARM_USERS_FILE, read_node
from appliance.drivers.network.farm_stream import Route
from appliance.formats.raft_legacy.configuration import Server, endpoint_address, server_checked
from appliance.roles.farm.client import FarmClient
from appliance.roles.farm.exchange import (
    USERS_FILE,
    exported,
    read_export,
    settings_of,
    unpack,
    write_export,
)
from appliance.roles.farm.founding import found, join, make_code
from appliance.roles.farm.link import Keys
from appliance.roles.farm.node_files import farm_settings
from appliance.roles.farm.recovery import go_on_alone
from appliance.roles.farm.serve import serve
from appliance.roles.farm.settings import (
    CARRIERS,
    PLAIN,
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
from appliance.roles.operator.farm import Asker, lines, member_named, take_out

FOLDER = click.Path(path_type=Path, file_okay=False)
FILE = click.Path(path_type=Path, dir_okay=False)


@click.group("farm")
def command() -> None:
    """A member of a farm alone, and what can be done with a farm."""


def _server(text: str) -> Server:
    server_id, _, endpoint = text.partition("=")
    try:
        return server_checked(int(server_id), endpoint)
    except (ValueError, FarmFrameError) as error:
        raise ConfigurationError(f"--peer {text}: {error}; write ID=tcp://host:port") from error


def _pin(text: str) -> tuple[int, bytes]:
    server_id, _, digest = text.partition("=")
    try:
        pin = bytes.fromhex(digest)
        if len(pin) != 32:
            raise ValueError(f"{len(pin)} bytes")
        return int(server_id), pin
    except ValueError as error:
        raise ConfigurationError(
            f"--pin {text}: {error}; write ID= and the SHA-256 of the key's SPKI in hex"
        ) from error


def _place(option: str, text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ConfigurationError(f"{option} {text}; write host:port")
    return host.strip("[]"), int(port)


def _span(text: str) -> tuple[int, int]:
    low, _, high = text.partition("-")
    if not low.isdecimal() or not high.isdecimal():
        raise ConfigurationError(f"--election-ms {text}; write LOW-HIGH")
    return int(low), int(high)


@command.command("serve")
@click.option("--folder", type=FOLDER, required=True, help="Where the member keeps its log.")
@click.option("--id", "server_id", type=int, required=True, help="Its number in the farm.")
@click.option(
    "--imported",
    is_flag=True,
    help="All but --id, --listen and --join as `farm import` has put it into the folder.",
)
@click.option("--farm", "name", default="farm", show_default=True, help="Name of the farm.")
@click.option("--listen", metavar="HOST:PORT", help="Our own socket; must be said.")
@click.option("--endpoint", metavar="tcp://HOST:PORT", help="What members are told; as --listen.")
@click.option("--peer", "peers", multiple=True, metavar="ID=ENDPOINT", help="Another member.")
@click.option("--join", is_flag=True, help="Wait to be added instead of listing peers.")
@click.option("--carrier", type=click.Choice(CARRIERS), default=TLS, show_default=True)
@click.option("--certificate", type=FILE, help="PEM, for TLS.")
@click.option("--key", type=FILE, help="PEM, for TLS.")
@click.option("--pin", "pins", multiple=True, metavar="ID=HEX", help="Digest of a member's key.")
@click.option("--proxy", metavar="HOST:PORT", help="Dial through CONNECT of an HTTP proxy.")
@click.option("--user", default="", help="As whom this member logs in to others.")
@click.option("--password-file", type=FILE, help="Its password; mode 600.")
@click.option("--users-file", type=FILE, help="Who may log in here; mode 600. See `farm user`.")
@click.option("--realm", default=REALM_DEFAULT, show_default=True)
@click.option(
    "--digest",
    "algorithms",
    multiple=True,
    type=click.Choice(tuple(ALGORITHMS)),
    default=("SHA-256",),
    show_default=True,
    help="Algorithms offered and used, in order.",
)
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
        place = _place("--listen", listen) if listen else None
        return _run(settings_of(folder.absolute(), server_id, listen=place, join=join), log_level)
    if listen is None:
        raise ConfigurationError("--listen HOST:PORT is missing; or say --imported")
    raft = timed(
        OWN, election_ms=_span(election_ms), heartbeat_ms=heartbeat_ms, snapshots=snapshot_distance
    )
    settings = FarmSettings(
        folder=folder.absolute(),
        id=server_id,
        farm=name,
        listen=_place("--listen", listen),
        endpoint=endpoint or f"tcp://{listen}",
        peers=tuple(_server(text) for text in peers),
        join=join,
        carrier=carrier,
        user=user,
        password=read_password(password_file) if password_file else "",
        realm=realm,
        users=read_users(users_file) if users_file else (),
        algorithms=algorithms,
        certificate=certificate,
        key=key,
        pins=dict(_pin(text) for text in pins),
        proxy=_place("--proxy", proxy) if proxy else None,
        raft=raft,
    )
    return _run(settings, log_level)


def _run(settings: FarmSettings, log_level: str) -> int:
    settings.check()
    settings.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    lock_folder(settings.folder)
    log = start_log(f"farm-{settings.id}", log_level)
    return asyncio.run(serve([settings], log))


@command.command("user")
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
    pinned = dict(_pin(text) for text in pins)

    def route_of(server_id: int, endpoint: str) -> Route:
        host, port = endpoint_address(endpoint)
        return Route(host, port, pinned.get(server_id))

    keys = Keys(name, credentials, Challenges())
    return FarmClient([_server(text) for text in peers], keys, route_of)


@command.command("post")
@click.argument("values", nargs=-1)
@click.option("--peer", "peers", multiple=True, required=True, metavar="ID=ENDPOINT")
@click.option("--pin", "pins", multiple=True, metavar="ID=HEX", help="Digest of a member's key.")
@click.option("--farm", "name", default="farm", show_default=True, help="Name of the farm.")
@click.option("--user", default="", help="Without: raw frames, on loopback.")
@click.option("--password-file", type=FILE, help="Its password; mode 600.")
@click.option(
    "--digest",
    "algorithms",
    multiple=True,
    type=click.Choice(tuple(ALGORITHMS)),
    default=("SHA-256",),
)
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


@command.command("dump")
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


@command.command("init")
@click.option("--folder", type=FOLDER, required=True, help="Of its first member; made.")
@click.option("--listen", required=True, metavar="HOST:PORT", help="Its socket.")
@click.option("--endpoint", metavar="tcp://HOST:PORT", help="What members are told; as --listen.")
@click.option("--farm", "name", default="farm", show_default=True, help="Name of the farm.")
@click.option("--carrier", type=click.Choice((TLS, PLAIN)), default=TLS, show_default=True)
def init_command(folder: Path, listen: str, endpoint: str | None, name: str, carrier: str) -> None:
    """Make the first member of a new farm; others join it by code."""
    place = _place("--listen", listen)
    _make_folder(folder)
    found(folder.absolute(), name, place, endpoint or f"tcp://{listen}", carrier)
    click.echo(f"start it: tigerchat farm serve --imported --folder {folder} --id 1")


@command.command("invite")
@click.option("--folder", type=FOLDER, required=True, help="Of a member that runs.")
@click.option("--id", "server_id", type=int, required=True, help="Its number in the farm.")
@click.option("--minutes", type=click.IntRange(1, 10_080), default=60, show_default=True)
def invite_command(folder: Path, server_id: int, minutes: int) -> None:
    """Print a code with which one machine may join, once: keep it like a password."""
    settings = settings_of(folder.absolute(), server_id, listen=None, join=False)
    click.echo(make_code(settings, minutes).text())


@command.command("join")
@click.argument("code")
@click.option("--folder", type=FOLDER, required=True, help="Of the new member; made.")
@click.option("--endpoint", required=True, metavar="tcp://HOST:PORT", help="Where it is reached.")
def join_command(code: str, folder: Path, endpoint: str) -> None:
    """Fetch user, number and settings with a code from `farm invite`; the secret counts once."""
    parsed = parse_code(code if code != "-" else sys.stdin.readline().strip())
    _server(f"1={endpoint}")
    _make_folder(folder)
    server_id = asyncio.run(join(parsed, folder.absolute(), endpoint))
    click.echo(
        f"start it: tigerchat farm serve --imported --join --folder {folder} --id {server_id}"
    )


def _make_folder(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    os.close(lock_folder(folder))


@command.command("recover")
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
        node = read_node(node_folder.absolute())
        os.close(lock_folder(node.path))
        place, own_id = node.path / FARM_FOLDER / STORE_FOLDER, node.node.farm_id
    elif folder is not None and server_id is not None:
        os.close(lock_folder(folder))
        place, own_id = folder / STORE_FOLDER, server_id
    else:
        raise click.UsageError("say --node-folder F, or --folder and --id")
    if not sure:
        raise ConfigurationError(
            "recovery forgets all that only the lost members had, and two farms are the end if one "
            "of them comes back on its old log; if none ever will, say --majority-is-lost-for-good"
        )
    done = go_on_alone(place, own_id)
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


@command.command("export")
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


@command.command("import")
@click.argument("file", type=FILE)
@click.option("--folder", type=FOLDER, required=True, help="Made ready for `serve --imported`.")
@click.option("--secrets", type=FILE, help="The member's password, as export wrote it.")
def import_command(file: Path, folder: Path, secrets: Path | None) -> None:
    """Put what `farm export` wrote into a folder; a member's certificate goes there by hand."""
    content = read_export(file)
    password = read_password(secrets) if secrets is not None else ""
    _make_folder(folder)
    unpack(folder, content, password)


# --- the farm of a site ---------------------------------------------------------------------------

_LOCAL = click.option(
    "--local", type=FOLDER, metavar="DIR", help="The local site in DIR; run if nothing is said."
)
_NODE = click.option("--node-folder", type=FOLDER, metavar="F", help="The node in F alone.")


@command.command("status")
@_LOCAL
@_NODE
@click.option("--json", "as_json", is_flag=True, help="Everything that was said, an object a line.")
def status_command(local: Path | None, node_folder: Path | None, as_json: bool) -> int:
    """Leader, term, members with their match, statuses with their age, publisher and why."""
    asker = Asker(local, node_folder)
    found = asker.statuses()
    if as_json:
        for answer in found.values():
            click.echo(json_line(answer))
        return 0
    members = [said for said in found.values() if not said["out"]]
    if not members:
        click.echo(next(iter(found.values()))["out"])
        return 1
    leads = [said for said in members if said["role"] == "leader"]
    said = max(leads or members, key=lambda each: (each["term"], each["commit"]))
    for line in lines(asker.site, said):
        click.echo(line)
    return 0 if said["leader"] > 0 else 1


@command.command("exclude")
@click.argument("names", nargs=-1, required=True)
@click.option("--lift", is_flag=True, help="Let them in again.")
@_LOCAL
@_NODE
def exclude_command(
    names: tuple[str, ...], lift: bool, local: Path | None, node_folder: Path | None
) -> None:
    """Keep nodes, or identities of services, out of the directory."""
    asker = Asker(local, node_folder)
    nodes = {node.name: str(node.index + 1) for node in asker.site.nodes}
    wanted = [nodes.get(name, name) for name in names]
    asker.do(asker.any(), {"do": "exclude", "names": wanted, "lift": lift})


@command.command("publish")
@_LOCAL
@_NODE
def publish_command(local: Path | None, node_folder: Path | None) -> None:
    """Sign the directory anew now; refused by all but the node that publishes."""
    asker = Asker(local, node_folder)
    index = next(iter(asker.folders))
    if node_folder is None:
        holders = [
            said["view"]["publisher"] for said in asker.statuses().values() if "view" in said
        ]
        index = max(holders, default=1) - 1
    asker.publish(max(0, index))


@command.command("place")
@click.argument("shard", type=click.IntRange(0))
@click.argument("names", nargs=-1, required=True)
@_LOCAL
@_NODE
def place_command(
    shard: int, names: tuple[str, ...], local: Path | None, node_folder: Path | None
) -> None:
    """Say which nodes are to hold the replicas of SHARD; the directory tells it."""
    asker = Asker(local, node_folder)
    ids = [member_named(asker.site, name).index + 1 for name in names]
    asker.do(asker.any(), {"do": "place", "shard": shard, "nodes": ids})


@command.command("yield")
@_LOCAL
@_NODE
def yield_command(local: Path | None, node_folder: Path | None) -> None:
    """Let the leader, if it is on this machine, hand over to another member."""
    asker = Asker(local, node_folder)
    for index, said in asker.statuses().items():
        if said.get("role") == "leader":
            asker.hand_over(index)
            return
    raise StorageError("no member of this machine leads: run it where `farm status` says")


@command.command("remove")
@click.argument("name")
@_LOCAL
@_NODE
def remove_command(name: str, local: Path | None, node_folder: Path | None) -> None:
    """Take the member of node NAME out of the farm; a leader yields first."""
    asker = Asker(local, node_folder)
    take_out(asker, member_named(asker.site, name))


@command.command("leave")
@click.option("--node-folder", type=FOLDER, metavar="F", required=True, help="The node in F.")
def leave_command(node_folder: Path) -> None:
    """Take this node's own member out of the farm; a leader yields first."""
    asker = Asker(None, node_folder)
    take_out(asker, asker.site.nodes[next(iter(asker.folders))])


@command.command("period")
@click.argument("milliseconds", type=int)
@_LOCAL
@_NODE
def period_command(milliseconds: int, local: Path | None, node_folder: Path | None) -> None:
    """Say how often nodes post; a status is recent for 3, a directory valid for 10 of these."""
    asker = Asker(local, node_folder)
    asker.do(asker.any(), {"do": "period", "ms": milliseconds})
