"""`tigerchat token`: sign a token with the key of a local site; revoke tokens."""

import asyncio
from pathlib import Path

import click

from appliance.base.errors import ConfigurationError
from appliance.drivers.chat.access import local_token
from appliance.drivers.chat.token import parse_duration, parse_rights
from appliance.drivers.host.node_folder import read_node
from appliance.drivers.terminal.options import local_option
from appliance.formats.revocation import Revocation, is_valid
from appliance.formats.site import SITE_FILE, load_site
from appliance.roles.operator.revoking import revoke


@click.group("token", invoke_without_command=True)
@local_option("Folder of a site on this machine.")
@click.option("--user", metavar="NAME", help="Name of the author.")
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
@click.pass_context
def command(
    context: click.Context, local: Path, user: str | None, rights: tuple[str, ...], ttl: str
) -> None:
    """Print a token for a user: what the chat page and other clients sign in with.

    Rights are read, send, moderate (create rooms), import (store what was said elsewhere, by
    others) and admin. In a pattern * is any text.
    """
    if context.invoked_subcommand is not None:
        return
    if user is None:
        raise click.UsageError("Missing option '--user'.")
    click.echo(local_token(local, user, parse_rights(rights), parse_duration(ttl)))


@command.command("revoke")
@click.option("--user", metavar="NAME", help="All tokens that this author has now.")
@click.option("--jti", metavar="ID", help="The token with this claim jti.")
@local_option("Folder of a site on this machine.")
@click.option(
    "--node-folder",
    type=click.Path(path_type=Path),
    metavar="F",
    help="Folder of a node, in place of --local.",
)
def revoke_(user: str | None, jti: str | None, local: Path, node_folder: Path | None) -> None:
    """Take tokens back, on every node, within a second: their connections end (4003), and they
    open none any more. A token that is issued a minute later or more lets the user in again.
    """
    if (user is None) == (jti is None):
        raise ConfigurationError("say which tokens: --user NAME or --jti ID")
    revocation = Revocation("jti", jti) if jti is not None else Revocation("sub", str(user))
    if not is_valid(revocation):
        raise ConfigurationError(
            f"{revocation.value[:40]!r} stands in no token; allowed: 1 to 128 bytes of printable "
            "text"
        )
    if node_folder is None:
        site = load_site(local / SITE_FILE)
        node_folder = local / site.nodes[0].name
    asyncio.run(revoke(read_node(node_folder.absolute()), revocation))
    click.echo(f"revoked: {revocation.claim} {revocation.value}")
