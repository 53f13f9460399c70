"""A farm goes on from one member, and moves to other machines as a file."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import forked
from tests.patience import HUNG_S
from tests.ports import FreePorts
from tests.roles.farm.cluster import FARM, PASSWORD, Cluster, running


@pytest.fixture
def three(tmp_path: Path, free_ports: FreePorts) -> Iterator[Cluster]:
    yield from running(tmp_path / "farm", free_ports(3), 3, carrier="plain")


def farm(*words: object, code: int = 0) -> str:
    done = forked.run(["farm", *words])
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def post(cluster: Cluster, member: int, value: str) -> None:
    farm(
        "post", "--peer", f"{member}={cluster.endpoint(member)}", "--user", "poster",
        "--password-file", cluster.folder / "password", "--farm", FARM, value,
    )  # fmt: skip


def test_one_member_goes_on_when_the_majority_is_lost_for_good(three: Cluster) -> None:
    post(three, 1, '{"before":1}')
    three.stop(3)
    for member in (1, 2):
        three.kill(member)
    words = ("recover", "--folder", three.member_folder(3), "--id", 3)
    assert "two farms are the end" in farm(*words, code=2)
    said = farm(*words, "--majority-is-lost-for-good")
    assert all(f"member {lost} at tcp://" in said for lost in (1, 2)) and "WARNING" in said
    three.start(3)  # still told of its old peers: the log says that it is alone
    post(three, 3, '{"after":1}')
    assert three.leader() == 3
    assert "in use by process" in farm(*words, "--majority-is-lost-for-good", code=2)
    three.stop(3)
    values = [row.get("value", "") for row in three.dump(3)]
    assert '{"before":1}' in values and '{"after":1}' in values
    stranger = ("recover", "--folder", three.member_folder(3), "--id", 2)
    assert "not in the newest Configuration" in farm(
        *stranger, "--majority-is-lost-for-good", code=2
    )


def test_an_exported_farm_runs_where_it_is_imported(tmp_path: Path, free_ports: FreePorts) -> None:
    ports = free_ports(3)
    cluster = Cluster(tmp_path / "old", ports, static=3, carrier="plain")
    users = json.loads((cluster.folder / "users.json").read_text())
    row = {
        "version": 1, "farm": FARM, "realm": "farm", "carrier": "plain", "digests": ["SHA-256"],
        "require_server_proof": False,
        "members": [{"id": i, "endpoint": cluster.endpoint(i), "pin": ""} for i in (1, 2, 3)],
        "timings": {
            "election_ms_min": 400, "election_ms_max": 800, "heartbeat_ms": 80,
            "snapshot_distance": 500,
        },
        "users": users,
        "seal": "5e" * 32,
    }  # fmt: skip
    first = tmp_path / "first.json"
    first.write_text(json.dumps(row))
    first.chmod(0o600)
    password = cluster.folder / "password"
    farm("import", first, "--folder", tmp_path / "m1", "--secrets", password)
    again, secret = tmp_path / "again.json", tmp_path / "secret"
    farm("export", again, "--folder", tmp_path / "m1", "--id", 1, "--secrets", secret)
    found = json.loads(again.read_text())
    assert {**found, "limits": 0} == {**row, "limits": 0}
    assert found["limits"]["farm_voters_max"] == 15
    assert again.stat().st_mode & 0o777 == secret.stat().st_mode & 0o777 == 0o600
    assert PASSWORD not in again.read_text() and secret.read_text() == PASSWORD + "\n"
    again.chmod(0o644)
    assert "has mode 644" in farm("import", again, "--folder", tmp_path / "m2", code=2)
    again.chmod(0o600)
    for member in (2, 3):
        farm("import", again, "--folder", tmp_path / f"m{member}", "--secrets", secret)
    members = [
        forked.start(
            ["farm", "serve", "--imported", "--folder", tmp_path / f"m{i}", "--id", i]
            + ["--log-level", "warning"],
            environment=os.environ,
        )
        for i in (1, 2, 3)
    ]
    try:
        post(cluster, 2, '{"moved":1}')
    finally:
        for process in members:
            process.terminate()
        said = [process.communicate(HUNG_S)[1] for process in members]
    assert [process.returncode for process in members] == [0, 0, 0], said
    broken = {**row, "members": [{"id": 1, "endpoint": "nowhere", "pin": ""}]}
    first.write_text(json.dumps(broken))
    assert "export it again" in farm("import", first, "--folder", tmp_path / "m4", code=2)
