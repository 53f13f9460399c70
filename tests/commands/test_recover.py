"""`tigerchat recover` believes a replica only if it works on the volume that was just made."""

import shutil
from pathlib import Path

import pytest
from msgspec.structs import replace

from appliance.drivers.nvme.volume import read_facts
from appliance.node.catching_up import works_on
from tests.statuses import VOLUME, replica_status
from tests.system.local_site import run


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    words = ["format", "--local", str(tmp_path / "site"), "--no-farm"]
    done = run(*words, "--geometry", "small", "--brief")
    assert done.returncode == 0, done.stderr
    return tmp_path / "site" / "node-1" / "shard-0"


def test_who_answers_works_on_the_volume_whose_id_and_life_it_tells(
    volume: Path, tmp_path: Path
) -> None:
    life = 0  # as it was formatted
    id = read_facts(volume)["id"]
    own = replica_status(volume=VOLUME | {"id": id}, incarnation=life)
    assert works_on(own, volume)
    assert not works_on(replace(own, incarnation=life + 1), volume), "of a copy that was moved away"
    other = volume.parents[1] / "node-2" / "shard-0"
    assert not works_on(own, other)
    shutil.copytree(volume, tmp_path / "copy")
    assert works_on(own, tmp_path / "copy"), "equal in all: nobody has worked on either"
