"""`tigerchat object`: ids, a replica of the objects alone, its shell, what lies in its store."""

import asyncio
import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from appliance.base.errors import ConfigurationError, EditRefused, IdOutOfBounds, TextRefused
from appliance.base.json_text import parse_json
from appliance.base.limits import MIB
from appliance.base.printable import json_line
from appliance.cores.metadata.session import Pace
from appliance.drivers.host.node_folder import SOCKETS_FOLDER
from appliance.drivers.host.stdio import standard_input
from appliance.drivers.network.ask import Questions
from appliance.drivers.network.objects_link import OBJECTS_ANSWER_SIZE_MAX, OBJECTS_SOCKET
from appliance.formats.local import LOCAL_OBJECTS
from appliance.formats.site import SITE_FILE, load_site
from appliance.formats.toytlv.ids import (
    Id,
    id_of_key,
    key_of_id,
    pack_id,
    parse_id,
    typed_field,
    unpack_id,
    unzip_id,
    zip_id,
)
from appliance.roles.metadata.object_store import ObjectStore
from appliance.roles.metadata.requests import address_of, answer
from appliance.roles.metadata.service import Service

_LINE_SIZE_MAX = 64 * MIB  # bytes of one request of a shell
_ANSWER_S = 60.0  # a dump of a large store takes its time
_FOLDER = click.Path(path_type=Path, file_okay=False)


@click.group("object")
def command() -> None:
    """Objects that replicas share: topics, reactions, read markers, profiles."""


# --- ids ------------------------------------------------------------------------------------------


@command.command("id")
@click.argument("text")
@click.option("--letter", default="A", help="Type of the field, for the packed form.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def id_(text: str, letter: str, as_json: bool) -> int:
    """Show an id in all its forms.

    TEXT is src-seq[-field] in hexadecimal, or zip:HEX, key:HEX (32 digits), packed:HEX (16). A
    field of 20 or more is read as the first protocol writes it: number and type in one.
    """
    found, packed_letter = _id_of(text)
    forms = {
        "text": str(found),
        "zipped": zip_id(found).hex(),
        "key": key_of_id(found).hex(),
        "packed": f"{pack_id(found, packed_letter or letter):016x}",
    }
    if packed_letter:
        forms["letter"] = packed_letter
    click.echo(json_line(forms) if as_json else "\n".join(f"{k}\t{v}" for k, v in forms.items()))
    return 0


def _id_of(text: str) -> tuple[Id, str]:
    form, colon, digits = text.partition(":")
    if not colon:
        return typed_field(parse_id(text))
    try:
        data = bytes.fromhex(digits)
    except ValueError:
        data = b""
    if form == "zip" and (data or not digits):
        return unzip_id(data), ""
    if form == "key" and len(data) == 16:
        return id_of_key(data), ""
    if form == "packed" and len(data) == 8:
        return unpack_id(int.from_bytes(data, "big"))
    raise TextRefused(f"{text[:60]!r}: give src-seq[-field], zip:HEX, key:HEX or packed:HEX")


# --- a replica alone ------------------------------------------------------------------------------


def _source(text: str) -> int:
    try:
        return int(text, 16)
    except ValueError as error:
        raise IdOutOfBounds(f"--src {text[:20]!r} is no hexadecimal number") from error


def _replica_options(function: Any) -> Any:
    for option in (
        click.option("--src", "source", required=True, metavar="HEX", help="2 to fffff."),
        click.option("--name", default="", help="Its name."),
        click.option("--folder", type=_FOLDER, required=True, help="Of its store."),
        click.option("--listen", metavar="HOST:PORT", help="Accept there; port 0: any."),
        click.option("--connect", multiple=True, metavar="HOST:PORT", help="Keep a stream there."),
        click.option("--ping-ms", type=click.IntRange(10), default=10_000, show_default=True),
        click.option("--wait-ms", type=click.IntRange(10), default=10_000, show_default=True),
        click.option("--map-mib", type=click.IntRange(1), default=1024, show_default=True,
                     help="MiB that the store may grow to."),
    ):  # fmt: skip
        function = option(function)
    return function


@command.command("serve")
@click.option("--raw", is_flag=True, required=True, help="Alone, plain, on loopback only.")
@_replica_options
def serve(raw: bool, **options: Any) -> int:
    """Run one replica by itself, to set another implementation against it."""
    return asyncio.run(_run(options, reads=False, as_json=True))


@command.command("shell")
@click.option("--json", "as_json", is_flag=True, help="One JSON request a line, one answer a line.")
@_replica_options
def shell(as_json: bool, **options: Any) -> int:
    """Run one replica by itself and do what standard input asks for.

    Without --json a line is a verb and its arguments: `set a-2 1 "Ann"`, `object a-2`, `vv`.
    """
    return asyncio.run(_run(options, reads=True, as_json=as_json))


async def _run(options: dict[str, Any], *, reads: bool, as_json: bool) -> int:
    service = Service(
        ObjectStore(options["folder"], options["map_mib"] * MIB),
        source=_source(options["source"]),
        name=options["name"],
        pace=Pace(options["ping_ms"], options["wait_ms"], options["wait_ms"]),
    )
    beat = service.start()
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    beat.add_done_callback(lambda task: stopped.set())
    try:
        started: dict[str, Any] = {"source": options["source"]}
        if options["listen"]:
            started["port"] = await service.listen(*address_of(options["listen"]))
        for address in options["connect"]:
            service.connect(*address_of(address))
        _say(started)
        if reads:
            await _answer_lines(service, stopped, as_json)
        else:
            await stopped.wait()
        if beat.done():
            beat.result()  # raises what ended it
    finally:
        await service.close()
    return 0


def _say(what: dict[str, Any]) -> None:
    print(json_line(what), flush=True)


async def _answer_lines(service: Service, stopped: asyncio.Event, as_json: bool) -> None:
    """Until standard input ends, or we are told to stop."""
    reader = await standard_input(_LINE_SIZE_MAX)
    loop = asyncio.get_running_loop()
    stop = loop.create_task(stopped.wait())
    while True:
        line = loop.create_task(reader.readline())
        await asyncio.wait((line, stop), return_when=asyncio.FIRST_COMPLETED)
        if not line.done():
            line.cancel()
            return
        text = line.result().decode("utf-8", "replace").strip()
        if not text:
            if reader.at_eof():
                stop.cancel()
                return
            continue
        _say(await answer(service, _request(text, as_json)))


def _request(text: str, as_json: bool) -> Any:
    if as_json:
        try:
            return parse_json(text)
        except ValueError:
            return None
    verb, *rest = text.split(None, 1)
    words = list(_words(rest[0])) if rest else []
    request: dict[str, Any] = {"do": verb}
    if verb == "class":  # class S:Name N:Score
        return request | {"terms": [word.split(":", 1) for word in words]}
    if verb == "new":  # new a-1 "Ann" (5)
        return request | {"class": words[0] if words else None, "values": words[1:]}
    if verb in ("set", "add", "remove") and len(words) == 2:  # set 8e-82f0-32 "Ann"
        return request | {"object": words[0], "value": words[1]}
    names = {
        **dict.fromkeys(("set", "add", "remove"), ("object", "field", "value")),
        **dict.fromkeys(("listen", "connect"), ("address",)),
        "field": ("object", "field"),
        "object": ("object",),
        "raw": ("bytes",),
    }
    return request | dict(zip(names.get(verb, ()), words, strict=False))


def _words(text: str) -> Iterator[str]:
    """Words apart by spaces that stand in no quotes and no brackets."""
    word, depth, quoted, escaped = "", 0, False, False
    for char in text + " ":
        if char.isspace() and not quoted and depth <= 0:
            if word:
                yield word
            word = ""
            continue
        word += char
        if quoted:
            quoted = escaped or char != '"'
            escaped = char == "\\" and not escaped
        elif char == '"':
            quoted = True
        else:
            depth += (char in "{[(") - (char in "}])")


# --- the objects of a running node ----------------------------------------------------------------


def _questions(node_folder: Path) -> Questions:
    """The way to the node's objects; ConfigurationError where there is no node that can run."""
    try:
        site = load_site(node_folder / SITE_FILE)
    except ConfigurationError as error:
        raise _silent(node_folder, error) from error
    return Questions(
        node_folder / SOCKETS_FOLDER,
        OBJECTS_SOCKET,
        cluster=site.cluster,
        timeout_s=_ANSWER_S,
        answer_size_max=OBJECTS_ANSWER_SIZE_MAX,
    )


def _parsed(body: bytes) -> dict[str, Any]:
    """What the objects say; ValueError: nothing of theirs."""
    found = parse_json(body)
    if not isinstance(found, dict):
        raise ValueError("no object")
    return found


def _silent(node_folder: Path, error: Exception) -> ConfigurationError:
    socket_path = node_folder / SOCKETS_FOLDER / OBJECTS_SOCKET
    return ConfigurationError(
        f"the objects of {node_folder} do not answer at {socket_path} "
        f"({error}): start the node, and give it an objects_port in site.toml"
    )


def _ask(node_folder: Path, request: dict[str, Any]) -> dict[str, Any]:
    """The answer of the node's objects; ConfigurationError if they do not run or refuse."""
    try:
        with _questions(node_folder) as questions:
            found = _parsed(questions.ask(LOCAL_OBJECTS, json.dumps(request).encode()))
    except (OSError, ValueError) as error:
        raise _silent(node_folder, error) from error
    if "error" in found:
        raise EditRefused(found["reason"])
    return found


_NODE = click.option("--node-folder", type=_FOLDER, required=True, help="Of the running node.")
_SHOWN = {"room": "room", "message": "message", "user": "user", "object": "object"}


@command.command("show")
@_NODE
@click.argument("kind", type=click.Choice(tuple(_SHOWN)))
@click.argument("key")
def show(node_folder: Path, kind: str, key: str) -> int:
    """Show a room, a message, a user (author@site) or an object (its id), as one JSON object."""
    click.echo(json_line(_ask(node_folder, {"do": kind, _SHOWN[kind]: key})))
    return 0


_SET = ("topic", "description", "avatar", "pin", "unpin", "name", "about", "picture")


@command.command("set")
@_NODE
@click.argument("what", type=click.Choice(_SET))
@click.argument("key")
@click.argument("value")
def set_(node_folder: Path, what: str, key: str, value: str) -> int:
    """Set what is shown of a room or a user.

    topic, description, avatar ROOM TEXT; pin, unpin ROOM MSG_ID; name, about, picture
    AUTHOR@SITE TEXT.
    """
    if what == "topic":
        request: dict[str, Any] = {"do": "topic", "room": key, "text": value}
    elif what in ("pin", "unpin"):
        request = {"do": "pin", "room": key, "message": value, "pinned": what == "pin"}
    elif what in ("description", "avatar"):
        request = {"do": "describe", "room": key, what: value}
    else:
        request = {"do": "profile", "user": key, what: value}
    click.echo(json_line(_ask(node_folder, request)))
    return 0


@command.command("watch")
@_NODE
@click.option("--room", help="Only what happens in the room of this name.")
@click.option("--count", type=click.IntRange(1), help="End after so many.")
def watch(node_folder: Path, room: str | None, count: int | None) -> int:
    """Print each change of the product's objects as one JSON object a line, until Ctrl-C.

    Beside topics, pins, reactions, read markers and profiles: who types and who is there.
    """
    shown = 0
    try:
        with _questions(node_folder) as questions:
            questions.ask(LOCAL_OBJECTS, b'{"do": "watch"}')
            while count is None or shown < count:
                told = _parsed(questions.told(LOCAL_OBJECTS))
                for row in told.get("changes", [told["live"]] if "live" in told else []):
                    if room is None or row.get("room", "").partition("@")[0] == room:
                        _say(row)
                        shown += 1
                        if shown == count:
                            break
    except (OSError, ValueError) as error:
        raise _silent(node_folder, error) from error
    return 0


@command.group("peers", invoke_without_command=True)
@_NODE
@click.pass_context
def peers(context: click.Context, node_folder: Path) -> None:
    """Show links, vectors, counters and linked sites of a running node, as one JSON object.

    `peers add` and `peers remove` link another site and unlink it.
    """
    context.obj = node_folder
    if context.invoked_subcommand is None:
        status = _ask(node_folder, {"do": "status"}) | _ask(node_folder, {"do": "peers"})
        click.echo(json_line(status, indent=1))


@peers.command("add")
@click.argument("site", type=int)
@click.argument("address")
@click.argument("fingerprint")
@click.pass_obj
def peers_add(node_folder: Path, site: int, address: str, fingerprint: str) -> int:
    """Link the site of that number by a node's HOST:PORT and the FINGERPRINT of its key.

    The linked site sees every object of this one. It must add this one too.
    """
    request = {"do": "peers_add", "site": site, "address": address, "fingerprint": fingerprint}
    click.echo(json_line(_ask(node_folder, request)))
    return 0


@peers.command("remove")
@click.argument("site", type=int)
@click.pass_obj
def peers_remove(node_folder: Path, site: int) -> int:
    """Unlink a site. What it made stays."""
    click.echo(json_line(_ask(node_folder, {"do": "peers_remove", "site": site})))
    return 0


# --- what lies in a store -------------------------------------------------------------------------


def _alone(folder: Path, source: str) -> Service:
    if not (folder / "data.mdb").exists():
        raise ConfigurationError(f"{folder} holds no objects: give the folder of a replica")
    return Service(ObjectStore(folder, 1024 * MIB), source=_source(source), name="")


@command.command("dump")
@click.option("--folder", type=_FOLDER, required=True)
@click.option("--src", "source", required=True, metavar="HEX")
def dump(folder: Path, source: str) -> int:
    """Print keys and values of a store in hexadecimal; its replica must not run."""
    service = _alone(folder, source)
    for key, value in service.replica.dump():
        click.echo(f"{key.hex()} {value.hex()}")
    service.store.close()
    return 0


@command.command("verify")
@click.option("--folder", type=_FOLDER, help="Of a store whose replica does not run; with --src.")
@click.option("--src", "source", metavar="HEX")
@click.option("--node-folder", type=_FOLDER, help="Of a node that runs.")
def verify(folder: Path | None, source: str | None, node_folder: Path | None) -> int:
    """Check all states and vectors, print the digest: equal on nodes that have seen the same."""
    if node_folder is not None:
        click.echo(_ask(node_folder, {"do": "verify"})["digest"])
        return 0
    if folder is None or source is None:
        raise click.UsageError("give --folder and --src, or --node-folder")
    service = _alone(folder, source)
    try:
        click.echo(service.replica.verify())
    finally:
        service.store.close()
    return 0
