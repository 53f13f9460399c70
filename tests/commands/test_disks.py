"""`tigerchat disks`: the health of this machine's disks, which may be none that tell."""

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from appliance.commands.disks import command
from appliance.drivers.nvme import health
from tests.commands.conftest import Sentence, Tigerchat
from tests.formats.test_nvme_health import page


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with a disk that fails, and one that does not answer."""

    def ask(name: str) -> bytes:
        if name == "nvme1":
            raise OSError(5, "Input/output error")
        return page({0: "10", 5: "5f", 160: "0200000000000000"})

    monkeypatch.setattr(health, "controllers", lambda: ["nvme0", "nvme1"])
    monkeypatch.setattr(health, "ask", ask)


def run(*words: object) -> Result:
    return CliRunner().invoke(command, list(map(str, words)))


@pytest.mark.usefixtures("two")
def test_a_disk_that_fails_is_an_exit_code_and_each_trouble_is_said() -> None:
    told = run()
    assert told.exit_code == 1
    first, second = told.output.splitlines()
    assert first.startswith("nvme0: what protects its cache when power goes has failed; ")
    assert "2 times it could not give data back whole" in first
    assert "95 % of its expected life is used" in first
    assert second == "nvme1: not told: Input/output error"
    assert '"warnings": ["power_loss"]' in run("--json").output


@pytest.mark.usefixtures("two")
def test_what_is_recorded_is_what_a_node_reads(tmp_path: Path) -> None:
    told = run("--record", tmp_path)
    assert told.exit_code == 0 and "nvme1 does not answer" in told.output
    assert [entry.name for entry in tmp_path.iterdir()] == ["nvme0"]
    assert (tmp_path / "nvme0").stat().st_mode & 0o777 == 0o644

    def refused(name: str) -> bytes:
        raise PermissionError(13, "Permission denied")

    seen = health.health_of("nvme0", tmp_path, refused)
    assert isinstance(seen, health.Health) and seen.warnings == ("power_loss",)


def test_this_machine_tells_of_its_disks_or_that_it_has_none(tigerchat: Tigerchat) -> None:
    told = tigerchat("disks")
    assert told.returncode in (0, 1)
    expected = health.controllers() or ["disks"]
    assert [line.split(":")[0] for line in told.stdout.splitlines()] == expected


def test_a_folder_without_a_volume_is_named(
    tigerchat: Tigerchat, sentence: Sentence, tmp_path: Path
) -> None:
    assert "name the folder of a volume" in sentence(tigerchat("disks", "--volume", tmp_path), 2)
