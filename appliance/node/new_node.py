"""What every new node gets, whoever makes it: keys, ports and its description."""

import secrets
from collections.abc import Callable
from pathlib import Path

from appliance.base.errors import ConfigurationError
from appliance.drivers.host import identity
from appliance.drivers.host.durable_file import write_durable
from appliance.drivers.host.node_folder import (
    CLIENT_CERTIFICATE_FILE,
    KEYS_FOLDER,
    SIGNING_KEY_FILE,
    SOCKETS_FOLDER,
    TLS_CERTIFICATE_FILE,
    TLS_KEY_FILE,
    node_name,
    read_seed,
)
from appliance.formats.site import Node

PORTS_DEFAULT, PORTS_STEP = 7400, 100
# from a node's first port, which is that of its peers
CLIENT_PORT, CONSOLE_PORT, OBJECTS_PORT, FARM_PORT = 43, 80, 90, 91
TOKEN_NAME = "tigerchat"  # issuer and audience of the tokens that a site makes itself


def fresh_id() -> bytes:
    """16 random bytes; never zero, which means "none" on disk."""
    return secrets.token_bytes(15) + b"\x01"


def refuse_two(nodes: int, *, is_accepted: bool) -> None:
    """ConfigurationError: a group of two stops with either, and can come to an end by a crash
    (docs/operations.md)."""
    if nodes != 2 or is_accepted:
        return
    raise ConfigurationError(
        "two replicas live through the loss of neither: both have to acknowledge, so the site "
        "stands still while one is away, a lost disk of one cannot be recovered, and a crash in "
        "the middle of a write can leave both waiting for ever; have three (--nodes 3), or one, or "
        "say --accept-two-replicas to `format` or `found`"
    )


def make_keys(node_folder: Path, name: str, host: str) -> None:
    """The keys of a node, those that are not there yet."""
    node_folder.mkdir(mode=0o700, exist_ok=True)
    for private in (node_folder / KEYS_FOLDER, node_folder / SOCKETS_FOLDER):
        private.mkdir(mode=0o700, exist_ok=True)
    make_once(node_folder / SIGNING_KEY_FILE, lambda: identity.make_seed().hex() + "\n", 0o600)
    if not (node_folder / TLS_CERTIFICATE_FILE).exists():
        key, certificate = identity.make_certificate(name, host)
        write_durable(node_folder / TLS_KEY_FILE, key, 0o600)
        write_durable(node_folder / TLS_CERTIFICATE_FILE, certificate)


def make_once(path: Path, make: Callable[[], str], mode: int) -> None:
    if not path.exists():
        write_durable(path, make(), mode)


def described_node(
    node_folder: Path,
    index: int,
    first: int,
    *,
    objects: bool,
    farm: bool,
    name: str | None = None,
    host: str = "127.0.0.1",
) -> Node:
    """A node whose keys lie in `node_folder`, with its ports from `first` on."""
    shown = node_folder / CLIENT_CERTIFICATE_FILE
    return Node(
        index=index,
        name=name or node_name(index),
        host=host,
        peer_port=first,
        client_port=first + CLIENT_PORT,
        console_port=first + CONSOLE_PORT,
        objects_port=first + OBJECTS_PORT if objects else 0,
        farm_port=first + FARM_PORT if farm else 0,
        public_key=identity.public_key_of(read_seed(node_folder / SIGNING_KEY_FILE)),
        certificate_pem=(node_folder / TLS_CERTIFICATE_FILE).read_text(),
        client_certificate_pem=shown.read_text() if shown.exists() else "",
    )
