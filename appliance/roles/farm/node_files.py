"""What a node keeps of the farm in its folder: made by format, read by the role and by commands."""

import json
import secrets
from pathlib import Path
from typing import Any

from appliance.base.authority import authority
from appliance.base.errors import ConfigurationError
from appliance.base.json_text import parse_json
from appliance.base.signature import SigningKey
from appliance.cores.directory.signed import sign_delegation
from appliance.cores.raft.dial import Credentials
from appliance.cores.raft.users import ADMINISTRATOR, MEMBER
from appliance.drivers.host.durable_file import write_durable
from appliance.drivers.host.identity import make_seed
from appliance.drivers.host.node_folder import (
    FARM_DELEGATION_FILE,
    FARM_FOLDER,
    FARM_JOIN_FILE,
    FARM_KEY_FILE,
    FARM_OPERATOR_PASSWORD_FILE,
    FARM_PASSWORD_FILE,
    FARM_USERS_FILE,
    TLS_CERTIFICATE_FILE,
    TLS_KEY_FILE,
    NodeFolder,
    read_seed,
)
from appliance.formats.raft_legacy.configuration import Server
from appliance.formats.site import FARM, Node, Site
from appliance.roles.farm.settings import (
    REALM_DEFAULT,
    TLS,
    FarmSettings,
    make_user,
    read_password,
    read_users,
    write_users,
)


def endpoint_of(node: Node) -> str:
    """What the other members are told of a node's member."""
    return f"tcp://{authority(node.host, node.farm_port)}"


def user_of(node: Node) -> str:
    return f"node{node.farm_id}"


def administrator_of(node: Node) -> str:
    """As whom the member of a node asks for what its operator wants of the farm."""
    return f"operator{node.farm_id}"


def make_farm_key(folder: Path) -> SigningKey:
    """The key of who says which nodes may sign directories, in the folder of a local site."""
    path = folder / FARM_KEY_FILE
    if not path.exists():
        write_durable(path, make_seed().hex() + "\n", 0o600)
    return SigningKey(read_seed(path))


def make_node_files(folder: Path, site: Site) -> None:
    """What is missing for the farm in the folders of a local site's nodes; users and delegation
    are written anew, as nodes may have been added."""
    key = make_farm_key(folder)
    members = [node for node in site.nodes if node.farm_port]
    rows = []
    for node in members:
        place = folder / node.name
        rows.append(_user_row(place / FARM_PASSWORD_FILE, user_of(node), MEMBER, node.farm_id))
        path = place / FARM_OPERATOR_PASSWORD_FILE
        rows.append(_user_row(path, administrator_of(node), ADMINISTRATOR, 0))
    keys = {node.farm_id: node.public_key for node in members}
    delegation = json.dumps(sign_delegation(key, FARM, keys), sort_keys=True) + "\n"
    for node in members:
        write_users(folder / node.name / FARM_USERS_FILE, rows)
        write_durable(folder / node.name / FARM_DELEGATION_FILE, delegation)


def _user_row(path: Path, name: str, role: str, server_id: int) -> dict[str, Any]:
    """A user with the password in `path`, which is made if it is missing."""
    if not path.exists():
        write_durable(path, secrets.token_urlsafe(32) + "\n", 0o600)
    password = read_password(path)
    return make_user(
        name=name, role=role, server_id=server_id, realm=REALM_DEFAULT, password=password
    )


def read_administrator(node: NodeFolder) -> Credentials | None:
    """None: this node was made when there was none."""
    path = node.path / FARM_OPERATOR_PASSWORD_FILE
    if not path.exists():
        return None
    return Credentials(
        administrator_of(node.node),
        read_password(path),
        require_server_proof=node.settings.farm_require_server_proof,
    )


def read_delegation(node: NodeFolder) -> dict[str, object]:
    """Which nodes may sign, as this node has it; it is verified by whoever reads a directory."""
    path = node.path / FARM_DELEGATION_FILE
    try:
        found = parse_json(path.read_text())
        if set(found) != {"cluster", "keys", "signature"}:
            raise ValueError
    except (OSError, ValueError, TypeError) as error:
        raise ConfigurationError(f"{path}: no delegation ({error}); restore it") from error
    return dict(found)


def farm_settings(node: NodeFolder) -> FarmSettings:
    """How this node is a member of its site's farm."""
    own = node.node
    joins = (node.path / FARM_JOIN_FILE).exists()
    others = [n for n in node.site.nodes if n.farm_port and n.index != own.index]
    settings = FarmSettings(
        folder=node.path / FARM_FOLDER,
        id=own.farm_id,
        farm=FARM,
        listen=(own.host, own.farm_port),
        endpoint=endpoint_of(own),
        peers=() if joins else tuple(Server(n.farm_id, endpoint_of(n)) for n in others),
        join=joins,
        carrier=TLS,
        user=user_of(own),
        password=read_password(node.path / FARM_PASSWORD_FILE),
        users=read_users(node.path / FARM_USERS_FILE),
        certificate=node.path / TLS_CERTIFICATE_FILE,
        key=node.path / TLS_KEY_FILE,
        pins={n.farm_id: n.spki for n in others},
        require_server_proof=node.settings.farm_require_server_proof,
    )
    settings.check()
    return settings
