"""`tigerchat federation`: rooms shared between sites."""

import asyncio
import os
import sys
from collections.abc import Callable
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import click

from appliance.base.errors import ConfigurationError
from appliance.base.printable import counted, json_line, safe
from appliance.base.signature import SEED_SIZE
from appliance.cores.federation.parameters import Parameters
from appliance.drivers.host.federation_file import read_federation, write_federation
from appliance.drivers.host.node_folder import FEDERATION_FILE, NodeFolder, read_node
from appliance.drivers.host.node_user import work_as_owner
from appliance.drivers.host.stdio import standard_streams
from appliance.drivers.network.handlers import Handlers
from appliance.drivers.terminal.options import LOCAL_DEFAULT, node_options
from appliance.formats.author import AUTHOR_NAME_SIZE_MAX
from appliance.formats.federation_site import (
    PROFILES,
    FederationSite,
    PeerNode,
    PeerSite,
    RoomInvitation,
    SharedWith,
    check_name,
    decode_code,
    encode_code,
    sharing_of,
)
from appliance.formats.room_name import room_name_valid
from appliance.formats.sharing import Sharing
from appliance.formats.site import ports_of
from appliance.formats.status.part import plain
from appliance.roles.federation.bridge import Bridge, make_attachment
from appliance.roles.federation.participant import Attached, Participant, WritableStore
from appliance.roles.federation.store import LmdbChannelStore
from appliance.roles.operator import federation as operated
from appliance.roles.operator.sharing import set_sharing
from appliance.simulation.federation.store import MemoryStore

PORT = 12_700  # of every node, unless another is said
_LOCAL_PORT = 5  # behind a local node's console port
_FOLDER = click.Path(path_type=Path)


@click.group("federation")
def command() -> None:
    """Rooms shared between sites."""


def nodes_of(local: Path | None, node_folder: Path | None) -> list[NodeFolder]:
    """The nodes of this machine that the options name, by index."""
    if node_folder is not None:
        work_as_owner(node_folder)
        return [read_node(node_folder.absolute())]
    return operated.nodes_of((local or Path(LOCAL_DEFAULT)).absolute())


# --- this site among others -----------------------------------------------------------------------


@command.command("init")
@click.argument("name")
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    help=f"Where each node listens for other sites, by TCP and UDP. [default: {PORT}; of a local "
    "site one of each node's own]",
)
@node_options
def init(name: str, port: int | None, local: Path | None, node_folder: Path | None) -> None:
    """Call this site NAME among sites, and make its key.

    NAME stands behind people's names elsewhere: alice@NAME. It cannot be changed later.
    """
    check_name(name)
    nodes = nodes_of(local, node_folder)
    for node in nodes:
        if (node.path / FEDERATION_FILE).exists():
            known = read_federation(node.path)
            raise ConfigurationError(f"{node.node.name} is of the site {known.name} already")
    site = FederationSite(name, os.urandom(SEED_SIZE).hex(), _ports(nodes, port, node_folder))
    for node in nodes:
        write_federation(node.path, site)
    click.echo(f"federation: this is the site {name}")
    if node_folder is not None and len(nodes[0].site.nodes) > 1:
        click.echo(f"federation: copy {nodes[0].path / FEDERATION_FILE} to the other nodes, 0600")
    click.echo("federation: it begins with the next start of the nodes")


def _ports(nodes: list[NodeFolder], port: int | None, alone: Path | None) -> tuple[int, ...]:
    site = nodes[0].site
    if alone is not None:
        return (port or PORT,) * len(site.nodes)
    if port is not None:
        return tuple(port + node.index for node in site.nodes)
    ports = [node.console_port + _LOCAL_PORT for node in site.nodes]
    used = {found for node in site.nodes for found, _ in ports_of(site, node.index)}
    if used & set(ports):
        raise ConfigurationError("the site uses the ports that it would take: say --port")
    return tuple(ports)


@command.command("invite")
@node_options
def invite(local: Path | None, node_folder: Path | None) -> None:
    """Print the code by which another site knows this one; it holds no secret.

    Bring it to the other operator on a way that nobody can change it, and take theirs.
    """
    node = nodes_of(local, node_folder)[0]
    site = read_federation(node.path)
    hosts = [
        PeerNode(other.host, site.ports[other.index], other.certificate_pem)
        for other in node.site.nodes
    ]
    click.echo(encode_code(PeerSite(site.name, site.key.public.hex(), tuple(hosts))))


@command.command("add-site")
@click.argument("code")
@click.option(
    "--carrier",
    type=click.Choice(list(PROFILES)),
    default="stream",
    show_default=True,
    help="datagram: over UDP too, for a link that loses packets.",
)
@node_options
def add_site(code: str, carrier: str, local: Path | None, node_folder: Path | None) -> None:
    """Know the site whose `invite` printed CODE, and link to it."""
    peer = decode_code(code, PeerSite)
    peer = PeerSite(peer.name, peer.public_key, peer.nodes, carrier)
    nodes = nodes_of(local, node_folder)
    operated.write_site(nodes, read_federation(nodes[0].path).with_peer(peer))
    click.echo(f"federation: {peer.name} is known, with {counted(len(peer.nodes), 'node')}")
    _say_rest(nodes, node_folder)


@command.command("remove-site")
@click.argument("name")
@node_options
def remove_site(name: str, local: Path | None, node_folder: Path | None) -> None:
    """Know the site NAME no more: links end, and what it says is refused, whoever passes it on."""
    nodes = nodes_of(local, node_folder)
    operated.write_site(nodes, read_federation(nodes[0].path).without_peer(name))
    click.echo(f"federation: {name} is removed; what it said stays")
    _say_rest(nodes, node_folder)


def _say_rest(nodes: list[NodeFolder], alone: Path | None) -> None:
    """Of a node alone: the other ones, on their machines, do not know yet."""
    if alone is not None and len(nodes[0].site.nodes) > 1:
        click.echo("federation: say the same on the machine of each other node")


# --- rooms ----------------------------------------------------------------------------------------


@command.command("share")
@click.argument("room")
@click.option(
    "--with",
    "others",
    multiple=True,
    required=True,
    metavar="SITE[:RIGHT]",
    help="A site that takes part, to read and send; `:read`, to read alone; `:attached`, by an "
    "implementation that is attached. Say it for each.",
)
@click.option("--repair-ms-min", type=click.IntRange(1), default=Sharing(()).repair_ms_min)
@click.option("--repair-ms-max", type=click.IntRange(2), default=Sharing(()).repair_ms_max)
@click.option("--groups", type=click.IntRange(1, 65535), default=1, help="Of repair answers.")
@node_options
def share(
    room: str,
    others: tuple[str, ...],
    repair_ms_min: int,
    repair_ms_max: int,
    groups: int,
    local: Path | None,
    node_folder: Path | None,
) -> None:
    """Share ROOM with other sites, and print the code that each of them accepts.

    All that was said in it so far crosses too. Sharing it again replaces who takes part.
    """
    node = nodes_of(local, node_folder)[0]
    site = read_federation(node.path)
    _check_room(room)
    with_ = [SharedWith(site.name, site.key.public.hex(), "send")]
    for text in others:
        name, _, right = text.partition(":")
        peer = site.peer(name)
        if peer is None:
            known = ", ".join(peer.name for peer in site.peers) or "none"
            raise ConfigurationError(f"no site {name[:40]!r} is known; known: {known}")
        with_.append(SharedWith(name, peer.public_key, right or "send"))
    invitation = RoomInvitation(room, tuple(with_), repair_ms_min, repair_ms_max, groups)
    sharing = sharing_of(invitation)
    asyncio.run(set_sharing(node, room, sharing))
    click.echo(f"federation: {safe(room)} is shared; each of the others runs", err=True)
    click.echo(f"tigerchat federation accept {encode_code(invitation)}")


@command.command("accept")
@click.argument("code")
@node_options
def accept(code: str, local: Path | None, node_folder: Path | None) -> None:
    """Take part in the room that another site's `share` printed CODE for.

    The room is made here if there is none of its name.
    """
    node = nodes_of(local, node_folder)[0]
    site = read_federation(node.path)
    invitation = decode_code(code, RoomInvitation)
    sharing = sharing_of(invitation)
    _check_room(invitation.room)
    if not any((one.name, one.public_key) == _self(site) for one in sharing.sites):
        raise ConfigurationError(f"the code does not name this site, {site.name}, with its key")
    for one in sharing.sites:
        peer = site.peer(one.name)
        if peer is not None and peer.public_key != one.public_key.hex():
            raise ConfigurationError(
                f"{one.name} has another key here: add its code again, and ask its operator"
            )
    if not any(site.peer(one.name) for one in sharing.sites):
        raise ConfigurationError("none of its sites is known here: `federation add-site` first")
    asyncio.run(set_sharing(node, invitation.room, sharing))
    names = ", ".join(one.name for one in sharing.sites if one.name != site.name)
    click.echo(f"federation: {safe(invitation.room)} is shared with {names}")


def _self(site: FederationSite) -> tuple[str, bytes]:
    return site.name, site.key.public


@command.command("unshare")
@click.argument("room")
@node_options
def unshare(room: str, local: Path | None, node_folder: Path | None) -> None:
    """Share ROOM with nobody: what is said from now on stays here."""
    node = nodes_of(local, node_folder)[0]
    _check_room(room)
    asyncio.run(set_sharing(node, room, None))
    click.echo(f"federation: {safe(room)} is this site's own")


def _check_room(room: str) -> None:
    if not room_name_valid(room):
        raise ConfigurationError(f"{room[:40]!r} is no name of a room")


# --- looking --------------------------------------------------------------------------------------


@command.command("status")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a node.")
@node_options
def status(as_json: bool, local: Path | None, node_folder: Path | None) -> None:
    """Show links, who carries, and every shared room's buffers and drops."""
    for node in nodes_of(local, node_folder):
        told = operated.ask(node)
        if as_json:
            index = node.settings.index
            click.echo(json_line(plain(told) if told is not None else {"node": index}))
        elif told is None:
            click.echo(f"{node.node.name}: no federation runs")
        else:
            for line in operated.status_lines(node.node.name, told):
                click.echo(line)


@command.command("lag")
@node_options
def lag(local: Path | None, node_folder: Path | None) -> None:
    """Show what other sites have not acknowledged yet, room by room."""
    for _, told in operated.told_by(nodes_of(local, node_folder), operated.ask):
        for shard in told.shards if told is not None else ():
            for room in shard.rooms:
                name = operated.called(room.channel, room.room)
                click.echo(f"{name}  {room.unacknowledged}")


@command.command("verify")
@node_options
def verify(local: Path | None, node_folder: Path | None) -> int:
    """Ask every site for the order of every shared room; name the first message that differs."""
    code, seen = 0, 0
    for node, told in operated.told_by(nodes_of(local, node_folder), operated.own_logs):
        if told is None:
            if operated.is_there(node):
                code = 1
                click.echo(f"{node.node.name}: its federation does not answer: look again")
            continue
        for name, own in told.own.items():
            seen += 1
            found = operated.summaries_of(node, name, own)
            own, others = (own, {}) if found is None else found
            equal = all(other == own for other in others.values())
            code = code if equal and others else 1
            room = operated.called(name, told.rooms.get(name, ""))
            for line in operated.verified_lines(room, own, others):
                click.echo(line)
            for site, other in sorted(others.items()):
                if other != own:
                    count = max(own.count, other.count)
                    position = operated.first_difference(node, name, site, count)
                    click.echo(operated.difference_line(room, site, position))
    if not seen:
        click.echo("federation: no room is carried by a node of this machine")
    return code


# --- a bare channel -------------------------------------------------------------------------------


def parameter_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """One option for each parameter of a channel, with its default."""
    for field in reversed(fields(Parameters)):
        assert field.default is not MISSING
        name = field.name.replace("_", "-")
        kind = type(field.default)
        flag = f"--{name}/--no-{name}" if kind is bool else f"--{name}"
        option = click.option(flag, field.name, type=kind, default=field.default, show_default=True)
        function = option(function)
    return function


_LISTEN = click.option(
    "--listen",
    type=click.IntRange(0, 65535),
    metavar="PORT",
    help="Serve connections to this port of 127.0.0.1 instead of standard input and output; "
    "0: any, printed on standard error.",
)


@command.command("participant")
@click.option("--name", required=True, metavar="NAME", help="Name of this participant.")
@click.option("--channel", required=True, metavar="NAME", help="Name of the channel.")
@_LISTEN
@click.option(
    "--folder",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Keep the channel there; without it, it is forgotten at the end.",
)
@click.option("--seed", type=int, help="Of what is drawn at random; default: another each time.")
@parameter_options
def participant(
    name: str,
    channel: str,
    listen: int | None,
    folder: Path | None,
    seed: int | None,
    **parameters: Any,
) -> int:
    """Run one bare channel, so that any implementation can be attached.

    Frames: u32 big-endian size, a kind octet, a body. Kind 1 is an SDS message, 2 a JSON command
    (send, log, retrieve, stats, quit), 3 a JSON reply or event. Times are in milliseconds.
    """
    try:
        wanted = Parameters(**parameters)
    except AssertionError as error:
        raise click.UsageError(f"these parameters do not go together: {error}") from error
    drawn = int.from_bytes(os.urandom(8), "big") if seed is None else seed
    return asyncio.run(_participant(name, channel, listen, folder, drawn, wanted))


async def _participant(
    name: str,
    channel: str,
    listen: int | None,
    folder: Path | None,
    seed: int,
    parameters: Parameters,
) -> int:
    attached = Attached()
    store: WritableStore = MemoryStore() if folder is None else LmdbChannelStore(folder)
    made = attached.participant = Participant(
        name=name,
        channel=channel,
        parameters=parameters,
        store=store,
        seed=seed,
        send=attached.send,
    )
    try:
        await _serve(attached, listen, made.ended)
    finally:
        made.close()
        store.close()
    return 0


async def _serve(attached: Attached, listen: int | None, ended: asyncio.Event) -> None:
    """Whoever connects, or standard input and output, until that or the participant ends."""
    handlers = Handlers(attached.serve)
    try:
        if listen is None:
            reader, writer = await standard_streams()
            serving = asyncio.create_task(attached.serve(reader, writer))
        else:
            server = await asyncio.start_server(handlers.serve, "127.0.0.1", listen)
            print(f"listening on {server.sockets[0].getsockname()[1]}", file=sys.stderr, flush=True)
            serving = asyncio.create_task(server.serve_forever())
        ending = asyncio.create_task(ended.wait())
        await asyncio.wait({serving, ending}, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.gather(*[writer.drain() for writer in attached.writers])
        serving.cancel()
        ending.cancel()
    finally:
        await handlers.end()


# --- another implementation in a room -------------------------------------------------------------


@command.command("attach")
@click.argument("name")
@click.option("--folder", type=_FOLDER, required=True, metavar="DIR", help="Kept there.")
@click.option(
    "--site",
    "codes",
    multiple=True,
    required=True,
    metavar="CODE",
    help="What `invite` printed at a site that it is linked to. Say it for each.",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Where these sites reach it.")
@click.option("--port", type=click.IntRange(1, 65535), default=PORT, show_default=True)
def attach(name: str, folder: Path, codes: tuple[str, ...], host: str, port: int) -> None:
    """Have an implementation of Scalable Data Sync take part in rooms as the site NAME; print its
    code, for `add-site` at each of these sites.

    Then `share ROOM --with NAME:attached` there, and `bridge` here. Said again for the same folder,
    it replaces the sites and the address.
    """
    sites = [decode_code(code, PeerSite) for code in codes]
    click.echo(encode_code(make_attachment(folder.absolute(), name, sites, host, port)))


@command.command("bridge")
@click.argument("room")
@click.option("--folder", type=_FOLDER, required=True, metavar="DIR", help="As `attach` made it.")
@_LISTEN
@click.option("--author", default="", metavar="NAME", help="Who says what it says. [default: NAME]")
def bridge(room: str, folder: Path, listen: int | None, author: str) -> int:
    """Carry the channel of ROOM between the implementation of DIR and its sites.

    Frames are those of `participant`; the commands retrieve, stats, quit. The name of the channel
    is printed on standard error.
    """
    _check_room(room)
    if len(author.encode()) > AUTHOR_NAME_SIZE_MAX:
        raise ConfigurationError(f"an author has at most {AUTHOR_NAME_SIZE_MAX} bytes")
    return asyncio.run(_bridge(room, folder.absolute(), listen, author))


async def _bridge(room: str, folder: Path, listen: int | None, author: str) -> int:
    attached = Attached()
    made = attached.participant = Bridge(folder, room, author, attached.send)
    print(f"channel {made.channel}", file=sys.stderr, flush=True)
    await made.start()
    try:
        await _serve(attached, listen, made.ended)
    finally:
        await made.close()
    return 0
