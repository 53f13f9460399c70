"""Options that several verbs have: those by which a verb that speaks to a site finds it, and what
verbs that make one ask for."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

import click

from appliance.formats.author import OPERATOR
from appliance.formats.client.address import TRANSPORTS

Function = TypeVar("Function", bound=Callable[..., Any])

LOCAL_DEFAULT = Path("run")


class MessageId(click.ParamType[UUID]):
    """The id of a message, as `send` and `tail --json` print it."""

    name = "msg_id"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> UUID:
        try:
            return value if isinstance(value, UUID) else UUID(value)
        except ValueError:
            self.fail(
                f"{value!r} is no id of a message; `tigerchat send` prints one, and "
                "`tigerchat tail --json` shows that of each as msg_id",
                param,
                ctx,
            )


accept_two_option = click.option(
    "--accept-two-replicas",
    is_flag=True,
    help="With --nodes 2, which is refused otherwise: it lives through no loss, see the book.",
)
device_option = click.option(
    "--device",
    "devices",
    multiple=True,
    metavar="[VOLUME=]PATH",
    help="A raw device or partition for a volume, as /dev/disk/by-id names it; VOLUME is its "
    "folder, like shard-1, where there are several.",
)
erase_option = click.option(
    "--erase",
    count=True,
    help="Said twice: overwrite devices that carry something; all of that is lost.",
)
farm_key_option = click.option(
    "--farm-key",
    metavar="HEX",
    help="With --url: go by the directory that this key of the site vouches for.",
)
transport_option = click.option(
    "--transport",
    type=click.Choice(TRANSPORTS),
    default=TRANSPORTS[0],
    show_default=True,
    help="What carries the conversation: QUIC (webtransport), plain requests (the last two).",
)


class SiteWords(NamedTuple):
    """What was said of the site: the arguments of `access_of`."""

    local: Path
    urls: tuple[str, ...]
    token_file: Path | None
    ca_file: str | None
    user: str


def site_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds --local, --url, --token-file, --ca and --user: together the argument `site`."""

    @functools.wraps(function)
    def wrapped(*args: Any, **words: Any) -> Any:
        site = SiteWords(**{name: words.pop(name) for name in SiteWords._fields})
        return function(*args, site=site, **words)

    for option in reversed(_OPTIONS):
        wrapped = option(wrapped)
    return wrapped


def local_option(help_: str) -> Callable[[Function], Function]:
    """Adds --local with the usual folder."""
    return click.option(
        "--local",
        type=click.Path(path_type=Path),
        default=LOCAL_DEFAULT,
        metavar="DIR",
        show_default=True,
        help=help_,
    )


Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def local_site_option(words: str = "The local site in DIR") -> Decorator:
    """Adds --local: the argument `local`, None where it is not said."""
    return click.option(
        "--local",
        type=_FOLDER,
        metavar="DIR",
        help=f"{words}; {LOCAL_DEFAULT} if nothing else is said.",
    )


def node_options_saying(
    *, site: str = "The local site in DIR", node: str = "The node in F."
) -> Decorator:
    """Adds --local and --node-folder, in these words and at most one of them said: the arguments
    `local` and `node_folder`, None where it was not.
    """
    node_folder_option = click.option("--node-folder", type=_FOLDER, metavar="F", help=node)

    def decorated(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def wrapped(*args: Any, local: Path | None, node_folder: Path | None, **words: Any) -> Any:
            if local is not None and node_folder is not None:
                raise click.UsageError("say --local DIR or --node-folder F, not both")
            return function(*args, local=local, node_folder=node_folder, **words)

        return local_site_option(site)(node_folder_option(wrapped))

    return decorated


_FOLDER = click.Path(path_type=Path)
node_options = node_options_saying()  # of most verbs
_FILE = click.Path(path_type=Path, dir_okay=False)
_OPTIONS = (
    local_option("Folder of a site on this machine."),
    click.option(
        "--url",
        "urls",
        multiple=True,
        metavar="wss://HOST:PORT",
        help="Address of a node; again for further nodes.",
    ),
    click.option("--token-file", type=_FILE, help="File with the token to use."),
    click.option("--ca", "ca_file", type=_FILE, help="Certificates to trust for --url."),
    click.option(
        "--user",
        default=OPERATOR,
        show_default=True,
        metavar="NAME",
        help="Whom to be at a local site.",
    ),
)
