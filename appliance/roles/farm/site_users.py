"""Who may log in to the farm of a site: the users of a node's file, and for each node that came by
a code a member and an administrator, whose passwords follow from a secret that all members share.

    H(A1) of the first member ──▶ seal ──▶ password of node4 ──▶ H(A1) of node4
    in every member's users file                on node 4            wherever node 4 logs in

So one code is all that a machine needs: nothing is copied to the others when it comes. The seal
gives nobody more than the users file does, as H(A1) is as good as a password for a login.
"""

import hmac
from pathlib import Path
from typing import Any

from appliance.base.errors import ConfigurationError
from appliance.cores.raft.digest import SHA256
from appliance.cores.raft.users import ADMINISTRATOR, MEMBER, User
from appliance.formats.site import Node, Site
from appliance.roles.farm.settings import REALM_DEFAULT, make_user, read_rows, users_of

_SEAL, _PASSWORD = b"tigerchat farm seal", b"tigerchat farm password "


def user_of(node: Node) -> str:
    return f"node{node.farm_id}"


def administrator_of(node: Node) -> str:
    """As whom the member of a node asks for what its operator wants of the farm."""
    return f"operator{node.farm_id}"


def seal_of(rows: list[dict[str, Any]]) -> bytes:
    """The secret of these users, 32 bytes: of the first member, whom every file has.
    ConfigurationError: there is none."""
    members = [row for row in rows if row["class"] == MEMBER]
    first = min(members, key=lambda row: (row["id"], row["name"]), default=None)
    if first is None or SHA256 not in first["secrets"]:
        raise ConfigurationError(
            f"the users of the farm name no member with its {SHA256}: restore their file"
        )
    return hmac.digest(bytes.fromhex(first["secrets"][SHA256]), _SEAL, "sha256")


def password_of(rows: list[dict[str, Any]], name: str) -> str:
    """Of a user that is in nobody's file."""
    return hmac.digest(seal_of(rows), _PASSWORD + name.encode(), "sha256").hex()


def read_site_users(path: Path, site: Site) -> tuple[User, ...]:
    """Of the file in `path`, and of the members that the site file names beside."""
    rows = read_rows(path)
    known = {row["name"] for row in rows}
    missing = [
        make_user(
            name=name,
            role=role,
            server_id=node.farm_id if role == MEMBER else 0,
            realm=REALM_DEFAULT,
            password=password_of(rows, name),
        )
        for node in site.nodes
        for name, role in ((user_of(node), MEMBER), (administrator_of(node), ADMINISTRATOR))
        if node.farm_port and name not in known
    ]
    return users_of([*rows, *missing])
