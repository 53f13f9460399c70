"""Modes of private keys and of what is shipped; a token is not told to whoever listens."""

import os
import shutil
from pathlib import Path

import pytest

from appliance.base.errors import ConfigurationError
from appliance.base.prng import Prng
from appliance.drivers.chat.access import RIGHTS_USUAL, local_token
from appliance.drivers.hdfs.folder import FolderTarget
from appliance.drivers.hdfs.open_target import open_target
from appliance.drivers.host.node_folder import METRICS_KEY_FILE, open_node, own_secret
from appliance.formats.settings import SETTINGS_FILE, load_settings
from tests.security.formatted import format_one


@pytest.fixture(scope="module")
def formatted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = format_one(tmp_path_factory.mktemp("keys"))
    own_secret(folder / "node-0" / METRICS_KEY_FILE)
    return folder


KEYS = ("signing.key", "tls.key", "client.key", "metrics.key")


def test_every_private_key_of_a_node_is_known_here(formatted: Path) -> None:
    found = {path.name for path in (formatted / "node-0" / "keys").glob("*.key")}
    assert found == set(KEYS)
    assert open_node(formatted / "node-0").settings.index == 0


@pytest.mark.parametrize("name", KEYS)
@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620])
def test_a_key_that_others_may_use_stops_the_start(formatted: Path, name: str, mode: int) -> None:
    key = formatted / "node-0" / "keys" / name
    key.chmod(mode)
    try:
        with pytest.raises(ConfigurationError, match=f"{name} can be read by others: `chmod 600"):
            open_node(formatted / "node-0")
    finally:
        key.chmod(0o600)
    open_node(formatted / "node-0")


def test_a_token_is_not_signed_with_a_key_that_others_may_read(formatted: Path) -> None:
    key = formatted / "token.key"
    assert local_token(formatted, "alice", RIGHTS_USUAL, 60)
    key.chmod(0o644)
    try:
        with pytest.raises(ConfigurationError, match="can be read by others"):
            local_token(formatted, "alice", RIGHTS_USUAL, 60)
    finally:
        key.chmod(0o600)


def test_a_secret_is_made_once_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    first = own_secret(path)
    assert own_secret(path) == first and len(first) >= 32
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("mask", [0o077, 0o000])
def test_what_is_shipped_to_a_folder_is_for_owner_and_group(tmp_path: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        target = FolderTarget(tmp_path / "shared")
        target.put("_incoming/a", b"said in a room")
        assert target.rename("_incoming/a", "date=2026-01-02/hour=03/a", overwrite=False)
        target.make_folder("date=2026-01-03")
    finally:
        os.umask(before)
    modes = {
        str(path.relative_to(tmp_path)): path.stat().st_mode & 0o777 for path in tmp_path.rglob("*")
    }
    assert modes.pop("shared/date=2026-01-02/hour=03/a") == 0o640
    assert set(modes.values()) == {0o750}


@pytest.mark.parametrize(
    ("lines", "refused"),
    [
        ('ship_target = "http://name-node:9870/x"\nship_token_file = "t"\n', True),
        ('ship_target = "https://name-node:9871/x"\nship_token_file = "t"\n', False),
        ('ship_target = "http://name-node:9870/x"\n', False),
        (
            (
                'ship_target = "http://name-node:9870/x"\nship_token_file = "t"\n'
                "ship_token_over_http = true\n"
            ),
            False,
        ),
    ],
)
def test_a_delegation_token_goes_over_plain_http_only_when_that_is_said(
    tmp_path: Path, lines: str, refused: bool
) -> None:
    (tmp_path / SETTINGS_FILE).write_text("index = 0\n" + lines)
    settings = load_settings(tmp_path / SETTINGS_FILE)
    if refused:
        with pytest.raises(ConfigurationError, match="ship_token_over_http"):
            open_target(settings, tmp_path, tmp_path / "own", Prng(1))
    else:
        open_target(settings, tmp_path, tmp_path / "own", Prng(1))


def test_a_folder_of_a_node_that_was_copied_loosely_is_refused(
    formatted: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(formatted / "node-0", copy)
    for key in (copy / "keys").glob("*.key"):
        key.chmod(0o644)
    with pytest.raises(ConfigurationError, match="chmod 600"):
        open_node(copy)
