"""What a node keeps of the farm in its folder: made by format, or told to who founds a site or
joins one by a code; read by the role and by commands."""

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
    read_rows,
    users_of,
    write_users,
)
from appliance.roles.farm.site_users import (
    administrator_of,
    password_of,
    read_site_users,
    user_of,
)

FARM_PASSWORD_SIZE = 32  # bytes of randomness
FOUNDS = "founds"  # told to a machine: it is a member from the start, and asks nobody to be one


def endpoint_of(node: Node) -> str:
    """What the other members are told of a node's member."""
    return f"tcp://{authority(node.host, node.farm_port)}"


def make_farm_key(folder: Path) -> SigningKey:
    """The key of who says which nodes may sign directories, in the folder of a local site."""
    path = folder / FARM_KEY_FILE
    if not path.exists():
        write_durable(path, make_seed().hex() + "\n", 0o600)
    return SigningKey(read_seed(path))


def make_node_files(folder: Path, site: Site) -> None:
    """What is missing for the farm in the folders of a local site's nodes; users and delegation
    are written anew, as nodes may have been added. Of a member that came by a code and lies
    elsewhere nothing is written: it knows the others without."""
    key = make_farm_key(folder)
    members = [node for node in site.nodes if node.farm_port]
    here = [node for node in members if (folder / node.name).is_dir()]
    files = [folder / node.name / FARM_USERS_FILE for node in here]
    before = next((read_rows(file) for file in files if file.exists()), [])
    rows = []
    for node in here:
        node_path = folder / node.name
        path = node_path / FARM_PASSWORD_FILE
        rows.append(_user_row(path, user_of(node), MEMBER, node.farm_id, before))
        path = node_path / FARM_OPERATOR_PASSWORD_FILE
        rows.append(_user_row(path, administrator_of(node), ADMINISTRATOR, 0, before))
    made = {row["name"] for row in rows}
    rows += [row for row in before if row["name"] not in made]  # of a folder that is lost
    keys = {node.farm_id: node.public_key for node in members}
    delegation = json.dumps(sign_delegation(key, FARM, keys), sort_keys=True) + "\n"
    for node in here:
        write_users(folder / node.name / FARM_USERS_FILE, rows)
        write_durable(folder / node.name / FARM_DELEGATION_FILE, delegation)


def _user_row(
    path: Path, name: str, role: str, server_id: int, before: list[dict[str, Any]]
) -> dict[str, Any]:
    """A user with the password in `path`, which is made if it is missing: one that follows from the
    users of `before`, if there are some, so that a member that lies elsewhere knows it too."""
    if not path.exists():
        password = (
            password_of(before, name) if before else secrets.token_urlsafe(FARM_PASSWORD_SIZE)
        )
        write_durable(path, password + "\n", 0o600)
    password = read_password(path)
    return make_user(
        name=name, role=role, server_id=server_id, realm=REALM_DEFAULT, password=password
    )


def told_of_farm(node: NodeFolder, joining: Node, site_key: SigningKey | None) -> dict[str, Any]:
    """What a machine is told that becomes a member; empty: it is to be none.

    With the site's offline key it may sign directories, too. Without, it hands on those that others
    sign: its delegation does not name it.
    """
    if not joining.farm_port:
        return {}
    delegation = read_delegation(node)
    if site_key is not None:
        keys = {n.farm_id: n.public_key for n in node.site.nodes if n.farm_port}
        delegation = sign_delegation(site_key, FARM, keys)
    return {"users": read_rows(node.path / FARM_USERS_FILE), "delegation": delegation}


def told_of_founding(site: Site, key: SigningKey, password: str) -> dict[str, Any]:
    """What each machine is told with which a site begins, and its farm with it: they are members
    from the start. `key` is the offline key of the farm; all of them may sign directories.
    `password` is the first node's own and stays with it; those of all others follow from it.
    """
    own = site.nodes[0]
    first = make_user(
        name=user_of(own),
        role=MEMBER,
        server_id=own.farm_id,
        realm=REALM_DEFAULT,
        password=password,
    )
    keys = {node.farm_id: node.public_key for node in site.nodes if node.farm_port}
    return {"users": [first], "delegation": sign_delegation(key, FARM, keys), FOUNDS: True}


def take_farm(folder: Path, joining: Node, told: dict[str, Any], password: str = "") -> None:
    """Write down what `told_of_farm` or `told_of_founding` tells; nothing where this node is to be
    no member. `password`: of a member that has one already. ConfigurationError: it is no such
    thing."""
    if not joining.farm_port or not told:
        return
    try:
        rows, delegation = list(told["users"]), dict(told["delegation"])
        users_of(rows)
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise ConfigurationError("no users of a farm were told: join again") from error
    write_users(folder / FARM_USERS_FILE, rows)
    names = {FARM_PASSWORD_FILE: user_of(joining)}
    names[FARM_OPERATOR_PASSWORD_FILE] = administrator_of(joining)
    for file, name in names.items():
        known = password if file == FARM_PASSWORD_FILE else ""
        write_durable(folder / file, (known or password_of(rows, name)) + "\n", 0o600)
    write_durable(folder / FARM_DELEGATION_FILE, json.dumps(delegation, sort_keys=True) + "\n")
    if told.get(FOUNDS) is True:
        (folder / FARM_JOIN_FILE).unlink(missing_ok=True)
    else:
        write_durable(folder / FARM_JOIN_FILE, "")


def may_sign(node: NodeFolder) -> bool:
    """Whether the site lets this node sign directories, so that it may be chosen to. One that came
    by a code is not, as long as its delegation does not name it."""
    try:
        keys = read_delegation(node)["keys"]
    except ConfigurationError:
        return False  # it is lost, and others sign until it is restored
    own = node.node
    return isinstance(keys, dict) and keys.get(str(own.farm_id)) == own.public_key.hex()


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
        known=tuple(Server(n.farm_id, endpoint_of(n)) for n in others) if joins else (),
        users=read_site_users(node.path / FARM_USERS_FILE, node.site),
        certificate=node.path / TLS_CERTIFICATE_FILE,
        key=node.path / TLS_KEY_FILE,
        pins={n.farm_id: n.spki for n in others},
        require_server_proof=node.settings.farm_require_server_proof,
    )
    settings.check()
    return settings
