"""The options by which every verb that speaks to a site finds it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

import click

Function = TypeVar("Function", bound=Callable[..., Any])

LOCAL_DEFAULT = Path("run")
USER_DEFAULT = "operator"


class MessageId(click.ParamType):
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


def site_options(function: Function) -> Function:
    """Adds --local, --url, --token-file, --ca and --user: arguments of the same names."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


_FILE = click.Path(path_type=Path, dir_okay=False)
_OPTIONS = (
    click.option(
        "--local",
        type=click.Path(path_type=Path),
        default=LOCAL_DEFAULT,
        metavar="DIR",
        show_default=True,
        help="Folder of a site on this machine.",
    ),
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
        default=USER_DEFAULT,
        show_default=True,
        metavar="NAME",
        help="Whom to be at a local site.",
    ),
)
