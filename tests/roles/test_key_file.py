"""The issuer's key set in a node's folder: its contents count, and what is wrong is said once."""

import json
import logging
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from appliance.base.errors import ConfigurationError
from appliance.base.limits import KEY_SET_SIZE_MAX
from appliance.cores.edge.token import Tokens
from appliance.roles.edge.key_file import KeyFile
from tests.cores.edge.test_token import GOOD, elliptic


def key_set(*kids: str, **more: object) -> bytes:
    return json.dumps({"keys": [GOOD | {"kid": kid} for kid in kids], **more}).encode()


def overwritten(path: Path, data: bytes) -> None:
    path.write_bytes(data)


def renamed_over(path: Path, data: bytes) -> None:
    path.with_name("new").write_bytes(data)
    path.with_name("new").rename(path)


def behind_a_link(path: Path, data: bytes) -> None:
    """As a cluster's volumes do: the name stays, its folder is exchanged."""
    folder = path.with_name(f"data-{len(list(path.parent.iterdir()))}")
    folder.mkdir()
    (folder / "keys").write_bytes(data)
    path.with_name("link").symlink_to(folder / "keys")
    path.with_name("link").rename(path)


class Site:
    """A key file that is read by hand; all its versions bear one time."""

    def __init__(self, folder: Path, how: Callable[[Path, bytes], None], data: bytes) -> None:
        self.path, self._how = folder / "jwks.json", how
        self.tokens = Tokens(issuer="i", audience="a", keys={})
        self.write(data)
        self.file = KeyFile(self.path, self.tokens, logging.getLogger("keys"))

    def write(self, data: bytes) -> None:
        self._how(self.path, data)
        os.utime(self.path, (1, 1))

    def kids(self) -> set[str]:
        return set(self.tokens.keys)


@pytest.mark.parametrize("how", [overwritten, renamed_over, behind_a_link])
def test_other_keys_count_at_the_next_look_though_time_and_size_are_those_of_before(
    tmp_path: Path, how: Callable[[Path, bytes], None]
) -> None:
    site = Site(tmp_path, how, key_set("k1"))
    assert site.kids() == {"k1"} and not site.file.poll()
    site.write(key_set("k2"))
    assert site.file.poll() and site.kids() == {"k2"}
    site.write(key_set("k2"))
    assert not site.file.poll(), "the same keys are no news"


def test_what_is_left_out_and_what_cannot_be_read_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    site = Site(tmp_path, overwritten, json.dumps({"keys": [elliptic(), GOOD]}).encode())
    assert site.kids() == {"k1"}
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "1 key left out, 1 taken: key 'e': of kind 'EC' 'P-256'" in caplog.text
    caplog.clear()
    for broken in (b"{", b"[]", b"x" * (KEY_SET_SIZE_MAX + 1)):
        site.write(broken)
        assert not any(site.file.poll() for _ in range(3)) and site.kids() == {"k1"}
    assert [record.levelname for record in caplog.records] == ["ERROR"] * 3
    site.path.unlink()
    assert not site.file.poll() and not site.file.poll()
    assert len(caplog.records) == 4
    site.write(key_set("k3"))
    assert site.file.poll() and site.kids() == {"k3"} and len(caplog.records) == 4


def test_a_node_starts_with_foreign_keys_alone_and_not_with_what_is_no_key_set(
    tmp_path: Path,
) -> None:
    assert Site(tmp_path, overwritten, json.dumps({"keys": [elliptic()]}).encode()).kids() == set()
    with pytest.raises(ConfigurationError, match="allowed: a JSON Web Key Set"):
        Site(tmp_path, overwritten, b"nonsense")
