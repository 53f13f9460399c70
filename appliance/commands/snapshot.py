"""`tigerchat snapshot`: a room as one signed file, and whether such a file is what it says."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import click

from appliance.base.errors import ApplianceError, ConfigurationError, FormatError
from appliance.base.printable import counted, json_line
from appliance.base.signature import PUBLIC_KEY_SIZE
from appliance.drivers.chat.access import access_of
from appliance.drivers.chat.room_file import fetch
from appliance.drivers.chat.unknown_room import at_named
from appliance.drivers.terminal.options import SiteWords, local_option, site_options
from appliance.formats import snapshot
from appliance.formats.room_name import room_name_valid
from appliance.formats.site import SITE_FILE, load_site

_FILE = click.Path(path_type=Path, dir_okay=False)


@click.group("snapshot")
def command() -> None:
    """Fetch a room as a signed file, verify such a file."""


@command.command("room")
@click.argument("room")
@click.option("--until-op", type=click.IntRange(1), metavar="N", help="Up to this message number.")
@click.option("--to", "path", type=_FILE, required=True, metavar="FILE", help="A new file.")
@site_options
def room_(
    room: str,
    until_op: int | None,
    path: Path,
    site: SiteWords,
) -> None:
    """Write all messages of ROOM, signed by the node that served them, into a file.

    `tigerchat snapshot verify` needs nothing but the file and the public keys of the nodes.
    """
    if not room_name_valid(room):
        raise ConfigurationError(f"{room[:40]!r} is no name of a room")
    access = access_of(**site._asdict())
    part = path.with_name(path.name + ".part")
    try:
        if path.exists():
            raise ConfigurationError(f"{path} exists; name a new file with --to")
        with part.open("wb") as file:

            async def into_file(room_id: UUID) -> None:
                fetch(access.endpoints, access.token, room_id, until_op, file, time.sleep)

            asyncio.run(at_named(access, room, into_file))
        part.replace(path)
    except OSError as error:
        raise ConfigurationError(f"--to {path}: {error.strerror or error}") from error
    finally:
        part.unlink(missing_ok=True)
    click.echo(f"{path}: {path.stat().st_size} bytes; `tigerchat snapshot verify {path}`")


@command.command("verify")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False, exists=True))
@click.option("--key", "keys", multiple=True, metavar="HEX", help="A node's public key; again.")
@local_option("Without --key: trust the nodes of the site in DIR; a node's folder will do.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def verify(file: Path, keys: tuple[str, ...], local: Path, as_json: bool) -> None:
    """Check the signature of FILE, each of its records, and that none is missing between them."""
    trusted = list(_trusted(keys, local))
    try:
        name, found = snapshot.parse_of_any(file.read_bytes(), trusted)
    except FormatError as error:
        raise ApplianceError(
            f"{file}: {error}; none of {counted(len(trusted), 'key')} fits"
        ) from error
    if as_json:
        click.echo(json_line({"signed_by": name, **found.plain()}))
        return
    what = found.plain()["of"]
    click.echo(
        f"{file}: whole; {'room ' if what != 'segment' else 'a '}{what}, "
        f"{counted(found.record_count, 'record')}, {found.first_op} to {found.last_op}, "
        f"signed by {name}"
    )


def _trusted(keys: tuple[str, ...], local: Path) -> Iterator[tuple[str, bytes]]:
    """(name, public key) of who may have signed."""
    for text in keys:
        try:
            key = bytes.fromhex(text)
        except ValueError:
            key = b""
        if len(key) != PUBLIC_KEY_SIZE:
            raise ConfigurationError(
                f"--key is {text[:40]!r}; allowed: {2 * PUBLIC_KEY_SIZE} hexadecimal digits, as "
                "`tigerchat ship keys` prints them"
            )
        yield text[:16], key
    if not keys:
        for node in load_site(local / SITE_FILE).nodes:
            yield node.name, node.public_key
