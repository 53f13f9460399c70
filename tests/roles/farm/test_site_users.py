"""A node that comes by a code logs in to all members by what it was told, and they know it by what
they have: nothing is copied to them."""

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from appliance.base.errors import ConfigurationError, DirectoryRefused
from appliance.base.signature import SigningKey
from appliance.cores.directory.document import parse_document
from appliance.cores.directory.signed import open_directory, sign_directory
from appliance.cores.raft.digest import SHA256, secret_of
from appliance.cores.raft.users import ADMINISTRATOR, MEMBER, User
from appliance.drivers.host.identity import make_certificate
from appliance.drivers.host.node_folder import (
    FARM_DELEGATION_FILE,
    FARM_JOIN_FILE,
    FARM_PASSWORD_FILE,
    FARM_USERS_FILE,
    NodeFolder,
)
from appliance.formats.site import FARM, Site
from appliance.roles.farm.figures import NodeStatus, Published, status_document
from appliance.roles.farm.node_files import (
    farm_settings,
    make_farm_key,
    make_node_files,
    may_sign,
    read_administrator,
    read_delegation,
    take_farm,
    told_of_farm,
)
from appliance.roles.farm.posts import Posts
from appliance.roles.farm.settings import read_rows, read_users
from appliance.roles.farm.site_users import password_of, read_site_users, seal_of
from tests.cores.console.worlds import site

CAME, LATER = 3, 4
KEYS = [SigningKey(bytes([number + 1]) * 32) for number in range(5)]
_, PEM = make_certificate("a", "127.0.0.1")


def with_farm(count: int) -> Site:
    """A site of so many nodes, all of them members of its farm."""
    nodes = [
        dataclasses.replace(
            node,
            farm_port=7500 + node.index,
            public_key=KEYS[node.index].public,
            certificate_pem=PEM,
        )
        for node in site(count).nodes
    ]
    return dataclasses.replace(site(count), nodes=nodes)


def opened(folder: Path, of: Site, index: int) -> NodeFolder:
    settings = SimpleNamespace(
        index=index, client_tls=True, farm_require_server_proof=False, farm_publish="auto"
    )
    node = of.nodes[index]
    found = SimpleNamespace(path=folder / node.name, node=node, site=of, settings=settings)
    return cast(NodeFolder, found)


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """The folders of three nodes; what comes later has none."""
    for node in with_farm(3).nodes:
        (tmp_path / node.name / "keys").mkdir(parents=True)
    make_node_files(tmp_path, with_farm(3))
    return tmp_path


def joined(folder: Path, index: int = CAME, key: SigningKey | None = None) -> NodeFolder:
    """A machine that was told of the farm by node 1, elsewhere."""
    of = with_farm(index + 1)
    elsewhere = folder / "elsewhere"
    (elsewhere / f"node-{index}" / "keys").mkdir(parents=True)
    told = told_of_farm(opened(folder, of, 1), of.nodes[index], key)
    take_farm(elsewhere / f"node-{index}", of.nodes[index], told)
    return opened(elsewhere, of, index)


def known(node: NodeFolder) -> dict[str, User]:
    return {user.name: user for user in farm_settings(node).users}


def lets_in(node: NodeFolder, name: str, password: str) -> bool:
    """Whether this node's member knows a user by this password."""
    secret = secret_of(SHA256, username=name, realm="farm", password=password)
    return known(node)[name].secrets[SHA256] == secret


def test_who_comes_logs_in_everywhere_and_lets_all_in(made: Path) -> None:
    came = joined(made)
    settings, administrator = farm_settings(came), read_administrator(came)
    assert settings.join and settings.peers == ()
    asks = Posts(settings, came.node.spki, lambda: administrator)
    assert set(asks.client.table) == set(asks.acting.table) == {1, 2, 3, 4}, "whom it knows of"
    assert administrator is not None
    others = [opened(made, with_farm(4), index) for index in range(3)]
    for node in (*others, came):
        assert lets_in(node, "node4", settings.password)
        assert lets_in(node, "operator4", administrator.password)
        roles = {name: (user.role, user.id) for name, user in known(node).items()}
        assert roles["node4"] == (MEMBER, 4) and roles["operator4"] == (ADMINISTRATOR, 0)
    for node in others:
        assert lets_in(came, f"node{node.node.farm_id}", farm_settings(node).password)
    assert known(opened(made, with_farm(3), 0)).keys() == {
        f"{kind}{number}" for kind in ("node", "operator") for number in (1, 2, 3)
    }, "nobody is known whom the site file does not name"


def test_passwords_follow_from_the_first_members_secret_and_are_all_different(
    made: Path, tmp_path: Path
) -> None:
    rows = read_rows(made / "node-0" / FARM_USERS_FILE)
    names = ["node4", "node5", "operator4", "operator5"]
    assert len({password_of(rows, name) for name in names}) == 4
    assert seal_of(rows) == seal_of(rows[::-1]), "the order of the file is nothing"
    changed = [row | {"secrets": {SHA256: "0" * 64}} if row["id"] == 1 else row for row in rows]
    assert seal_of(changed) != seal_of(rows)
    secrets = {secret for row in rows for secret in row["secrets"].values()}
    assert seal_of(rows).hex() not in secrets
    other = rows[0] | {"name": "node1-before", "secrets": {SHA256: "0" * 64}}
    twice = [*rows, other]  # a second user under one id
    assert seal_of(twice) == seal_of(twice[::-1]) == seal_of(rows)
    with pytest.raises(ConfigurationError, match="restore their file"):
        seal_of([row for row in rows if row["class"] != MEMBER])


def test_a_node_that_is_added_here_is_known_to_one_that_came_by_a_code(made: Path) -> None:
    came = joined(made)
    (made / f"node-{LATER}" / "keys").mkdir(parents=True)
    make_node_files(made, with_farm(LATER + 1))
    added = opened(made, with_farm(LATER + 1), LATER)
    later = opened(came.path.parent, with_farm(LATER + 1), CAME)
    assert lets_in(later, "node5", farm_settings(added).password)
    assert lets_in(added, "node4", farm_settings(came).password)
    assert not (made / f"node-{CAME}").exists(), "who lies elsewhere is left alone"


def test_users_of_a_folder_that_is_lost_stay_and_so_does_the_seal(made: Path) -> None:
    before = seal_of(read_rows(made / "node-1" / FARM_USERS_FILE))
    password = (made / "node-0" / FARM_PASSWORD_FILE).read_text().strip()
    for path in sorted((made / "node-0").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    (made / "node-0").rmdir()
    make_node_files(made, with_farm(3))
    rows = read_rows(made / "node-1" / FARM_USERS_FILE)
    assert seal_of(rows) == before
    assert lets_in(opened(made, with_farm(3), 1), "node1", password)


def test_users_that_stand_in_the_file_are_taken_from_there(made: Path) -> None:
    path = made / "node-0" / FARM_USERS_FILE
    assert read_site_users(path, with_farm(3)) == read_users(path)


def directory_of(node: NodeFolder) -> bytes:
    content = {"cluster": FARM, "version": 1, "publisher": node.node.farm_id}
    return sign_directory(KEYS[node.node.index], content, read_delegation(node))


def posted(node: NodeFolder) -> Any:
    value = status_document(
        NodeStatus(node), [], date_ms=1, published=Published(), publishing=False
    )
    document = parse_document(value)
    assert document is not None
    return document["meta"]["publishConfig"]


def test_only_whom_the_sites_key_names_is_there_to_be_chosen_as_publisher(made: Path) -> None:
    key = make_farm_key(made)
    came = joined(made)
    assert not may_sign(came) and posted(came) == "off"
    with pytest.raises(DirectoryRefused):
        open_directory(directory_of(came), cluster=FARM, offline=key.public, version_least=0)
    assert may_sign(opened(made, with_farm(4), 0)) and posted(opened(made, with_farm(4), 0))
    named = joined(made, LATER, key)
    assert may_sign(named) and posted(named) == "auto"
    open_directory(directory_of(named), cluster=FARM, offline=key.public, version_least=0)
    stranger = dataclasses.replace(named.node, public_key=KEYS[0].public)
    assert not may_sign(cast(NodeFolder, SimpleNamespace(path=named.path, node=stranger)))
    (named.path / FARM_DELEGATION_FILE).write_text("{}")
    assert not may_sign(named) and posted(named) == "off", "it is damaged"


@pytest.mark.parametrize(
    "told", [{"users": [{}], "delegation": {}}, {"users": 5}, {"delegation": 1}]
)
def test_what_is_no_farm_is_not_taken(told: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no users of a farm were told"):
        take_farm(tmp_path, with_farm(1).nodes[0], told)
    assert not list(tmp_path.iterdir())


def test_a_machine_of_a_site_without_a_farm_gets_none(made: Path, tmp_path: Path) -> None:
    of = with_farm(4)
    alone = dataclasses.replace(of.nodes[3], farm_port=0)
    assert told_of_farm(opened(made, of, 0), alone, None) == {}
    take_farm(tmp_path / "x", alone, {})
    take_farm(tmp_path / "x", of.nodes[3], {})  # an earlier version tells nothing
    assert not (tmp_path / "x" / FARM_JOIN_FILE).exists()
