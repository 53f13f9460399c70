"""`tigerchat profile`: the name and picture that others see."""

import asyncio
from pathlib import Path
from typing import NamedTuple

import click

from appliance.base.errors import ApplianceError, ConfigurationError, TextRefused
from appliance.base.limits import OBJECT_TEXT_SIZE_MAX
from appliance.base.printable import json_line, one_line
from appliance.drivers.chat.access import access_of
from appliance.drivers.chat.at_room import answered, state_of
from appliance.drivers.chat.client import Client
from appliance.drivers.terminal.options import SiteWords, site_options
from appliance.formats.client.objects import Profile
from appliance.formats.picture import picture_text


class _Texts(NamedTuple):
    """Of a profile. None: as it is."""

    name: str | None
    about: str | None
    picture: str | None


@click.command("profile")
@click.option("--name", metavar="TEXT", help="The name that others see; empty: none.")
@click.option("--about", metavar="TEXT", help="A word about oneself; empty: none.")
@click.option(
    "--picture",
    type=click.Path(path_type=Path, dir_okay=False),
    help="A PNG or JPEG of at most 128 pixels a side and 3 KB.",
)
@click.option("--no-picture", is_flag=True, help="Take the picture away.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object, when it is shown.")
@site_options
def command(
    name: str | None,
    about: str | None,
    picture: Path | None,
    no_picture: bool,
    as_json: bool,
    site: SiteWords,
) -> None:
    """Show the profile of --user, or of the token's user, or set what is said of it.

    No quorum is asked for: it goes on when messages wait.
    """
    if picture and no_picture:
        raise click.UsageError("say either --picture or --no-picture")
    shown = "" if no_picture else _read(picture) if picture else None
    wished = _Texts(name, about, shown)
    access = access_of(**site._asdict())

    async def act(client: Client) -> None:
        texts = wished
        if None in wished:  # a profile is set as a whole: what is not wished stays
            texts = _Texts(
                *(
                    old if new is None else new
                    for old, new in zip(await _own(client), wished, strict=True)
                )
            )
        if wished == _Texts(None, None, None):
            _show(texts, as_json)
            return
        ack = await client.change(Profile(**texts._asdict()))
        click.echo("profile set" if ack.changed else "profile was so already")

    asyncio.run(answered(access, act))


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(OBJECT_TEXT_SIZE_MAX + 1)
        return picture_text(data)
    except OSError as error:
        raise ConfigurationError(f"{path}: {error.strerror}") from None
    except TextRefused as error:
        raise ConfigurationError(f"{path} is no picture that a profile takes: {error}") from None


async def _own(client: Client) -> _Texts:
    """It is told with the state of any room that the user may read."""
    rooms = await client.rooms()
    if not rooms:
        raise ApplianceError(
            "a profile is told with a room, and this user may read none: create one "
            "(`tigerchat room create NAME`), or set --name, --about and --picture together"
        )
    assert client.welcome is not None
    for item in (await state_of(client, rooms[0].room_id)).items:
        if item.kind == "profile" and item.author == client.welcome.author:
            return _Texts(item.text or "", item.about or "", item.picture or "")
    return _Texts("", "", "")


def _show(texts: _Texts, as_json: bool) -> None:
    told = texts._asdict()
    if as_json:
        click.echo(json_line(told))
        return
    for word, text in (("name", texts.name), ("about", texts.about)):
        click.echo(f"{word}: {one_line(text or '')}" if text else f"no {word}")
    click.echo(f"picture of {len(texts.picture)} bytes" if texts.picture else "no picture")
