"""`tigerchat token`: sign a token with the key of a local site."""

from pathlib import Path

import click

from appliance.drivers.chat.access import local_token
from appliance.drivers.chat.token import parse_duration, parse_rights
from appliance.drivers.terminal.options import LOCAL_DEFAULT


@click.command("token")
@click.option(
    "--local",
    type=click.Path(path_type=Path),
    default=LOCAL_DEFAULT,
    metavar="DIR",
    show_default=True,
    help="Folder of a site on this machine.",
)
@click.option("--user", required=True, metavar="NAME", help="Name of the author.")
@click.option(
    "--right",
    "rights",
    multiple=True,
    default=("*=read,send",),
    show_default=True,
    metavar="PATTERN=RIGHT,...",
    help="Rights in rooms whose name fits; may be repeated.",
)
@click.option(
    "--ttl",
    default="12h",
    show_default=True,
    metavar="TIME",
    help="How long it is valid: a number and s, m, h or d. Nodes refuse more than a day, unless "
    "their token_life_s_max allows it.",
)
def command(local: Path, user: str, rights: tuple[str, ...], ttl: str) -> None:
    """Print a token for a user: what the chat page and other clients sign in with.

    Rights are read, send, moderate (create rooms) and admin. In a pattern * is any text.
    """
    click.echo(local_token(local, user, parse_rights(rights), parse_duration(ttl)))
