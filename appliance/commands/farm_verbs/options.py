"""What several verbs of the farm understand on their command line."""

from pathlib import Path

import click

from appliance.base.errors import ConfigurationError, FarmFrameError
from appliance.cores.raft.digest import ALGORITHMS
from appliance.formats.raft_legacy.configuration import Server, server_checked

FOLDER = click.Path(path_type=Path, file_okay=False)
FILE = click.Path(path_type=Path, dir_okay=False)

pin_option = click.option(
    "--pin", "pins", multiple=True, metavar="ID=HEX", help="Digest of a member's key."
)
farm_option = click.option(
    "--farm", "name", default="farm", show_default=True, help="Name of the farm."
)
password_option = click.option("--password-file", type=FILE, help="Its password; mode 600.")
digest_option = click.option(
    "--digest",
    "algorithms",
    multiple=True,
    type=click.Choice(tuple(ALGORITHMS)),
    default=("SHA-256",),
    show_default=True,
    help="Algorithms offered and used, in order.",
)


def server_said(text: str) -> Server:
    server_id, _, endpoint = text.partition("=")
    try:
        return server_checked(int(server_id), endpoint)
    except (ValueError, FarmFrameError) as error:
        raise ConfigurationError(f"--peer {text}: {error}; write ID=tcp://host:port") from error


def pin_said(text: str) -> tuple[int, bytes]:
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


def address_said(option: str, text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ConfigurationError(f"{option} {text}; write host:port")
    return host.strip("[]"), int(port)


def span_said(text: str) -> tuple[int, int]:
    low, _, high = text.partition("-")
    if not low.isdecimal() or not high.isdecimal():
        raise ConfigurationError(f"--election-ms {text}; write LOW-HIGH")
    return int(low), int(high)
