"""`member remove`, and `invite` in the place of a lost node, say what is left to do of the farm."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from appliance.base.errors import StorageError
from appliance.commands.member import leave_farm
from appliance.drivers.host.node_folder import NodeFolder
from appliance.formats.settings import SETTINGS_FILE, encode_settings
from appliance.formats.site import SITE_FILE, Site, encode_site
from tests.roles.farm.test_site_users import KEYS, with_farm


def leave(folder: Path, site: Site, name: str) -> None:
    (folder / SITE_FILE).write_text(encode_site(site))
    (folder / SETTINGS_FILE).write_text(encode_settings(0))
    leave_farm(cast(NodeFolder, SimpleNamespace(site=site)), None, folder, name)


def test_where_no_member_answers_it_is_told_what_to_run_then(tmp_path: Path) -> None:
    site = replace(with_farm(3), farm_key=KEYS[0].public)
    with pytest.raises(StorageError, match="node-1 is out of the shards, and may.*") as raised:
        leave(tmp_path, site, "node-1")
    assert "run `tigerchat farm remove node-1`" in str(raised.value)


def test_a_site_without_a_farm_and_a_node_outside_it_are_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    site = with_farm(3)
    leave(tmp_path, site, "node-1")
    outside = [replace(node, farm_port=0) for node in site.nodes]
    leave(tmp_path, replace(site, farm_key=KEYS[0].public, nodes=outside), "node-1")
    assert capsys.readouterr().out == ""
