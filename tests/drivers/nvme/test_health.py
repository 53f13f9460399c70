"""The health of disks: which are under a volume, who may ask them, and what is not told."""

import os
import struct
import threading
from pathlib import Path

import pytest

from appliance.base.limits import MIB
from appliance.drivers.nvme import health
from appliance.drivers.nvme.health import DiskHealth, controllers, controllers_of, health_of
from appliance.formats.status.replica import DisksHealth
from tests.formats.test_nvme_health import page
from tests.loop_device import loop_device
from tests.patience import HUNG_S
from tests.system.local_site import wait_until


@pytest.fixture
def system(tmp_path: Path) -> Path:
    """A /sys as kernels lay it out: two controllers with a namespace each, the second one in
    partitions; a namespace that two controllers lead to; one mirror of two; another disk."""
    top = tmp_path / "sys"
    pci = top / "devices/pci0000:00"
    plain = pci / "0000:01:00.0/nvme/nvme0/nvme0n1"
    parted = pci / "0000:02:00.0/nvme/nvme1/nvme1n1"
    shared = top / "devices/virtual/nvme-subsystem/nvme-subsys2/nvme2n1"
    other = pci / "0000:03:00.0/virtio0/block/vda"
    mirror = top / "devices/virtual/block/md0"
    for folder in (plain, parted / "nvme1n1p1", shared, other, mirror / "slaves"):
        folder.mkdir(parents=True)
    (parted / "nvme1n1p1/partition").write_text("1\n")
    for name in ("nvme2", "nvme3"):
        (shared.parent / name).mkdir()
    (mirror / "slaves/nvme0n1").symlink_to(plain)
    (mirror / "slaves/nvme1n1p1").symlink_to(parted / "nvme1n1p1")
    numbers = {"259:0": plain, "259:2": parted / "nvme1n1p1", "259:3": shared}
    numbers |= {"254:0": other, "9:0": mirror}
    (top / "dev/block").mkdir(parents=True)
    for number, place in numbers.items():
        (top / "dev/block" / number).symlink_to(place)
    for name in ("nvme1", "nvme0"):
        (top / "class/nvme" / name).mkdir(parents=True)
    return top


@pytest.mark.parametrize(
    ("number", "found"),
    [
        ((259, 0), {"nvme0"}),
        ((259, 2), {"nvme1"}),
        ((259, 3), {"nvme2", "nvme3"}),
        ((9, 0), {"nvme0", "nvme1"}),
        ((254, 0), set()),
        ((0, 41), set()),  # a file system on no device of its own
    ],
)
def test_disks_under_a_device_are_found_by_their_controllers(
    system: Path, number: tuple[int, int], found: set[str]
) -> None:
    assert controllers_of(os.makedev(*number), system) == found
    assert controllers(system) == ["nvme0", "nvme1"]


def test_the_question_has_the_size_that_the_kernel_knows_it_by() -> None:
    assert struct.calcsize(health._COMMAND.format) == health._ADMIN >> 16 & 0x3FFF == 72


def refused(controller: str) -> bytes:
    raise PermissionError(13, "Permission denied")


def test_a_node_without_rights_reads_what_the_machine_left_until_it_is_old(tmp_path: Path) -> None:
    assert "only root may ask it" in str(health_of("nvme0", tmp_path, refused))
    record = tmp_path / "nvme0"
    record.write_bytes(page())
    told = health_of("nvme0", tmp_path, refused)
    assert isinstance(told, health.Health) and told.temperature_c == 38
    record.write_bytes(page()[:100])
    assert health_of("nvme0", tmp_path, refused) == "a health page of 100 bytes, not 512"
    record.write_bytes(page())
    os.utime(record, (1, 1))
    assert "min old" in str(health_of("nvme0", tmp_path, refused))


def test_who_may_ask_is_told_what_is_now(tmp_path: Path) -> None:
    (tmp_path / "nvme0").write_bytes(page())
    told = health_of("nvme0", tmp_path, lambda name: page({1: "3801"}))
    assert isinstance(told, health.Health) and told.temperature_c == 39


def test_a_volume_on_another_disk_says_that_nothing_is_told(disk_folder: Path) -> None:
    (disk_folder / "data").touch()
    told = DiskHealth(disk_folder, system=disk_folder)
    told.poll()
    assert told.figures() == DisksHealth(untold={"disk": health.NO_CONTROLLER})


@pytest.mark.root
def test_a_volume_on_a_loop_device_says_that_nothing_is_told(disk_folder: Path) -> None:
    with loop_device(disk_folder / "disk", MIB) as device:
        (disk_folder / "data").symlink_to(device)
        told = DiskHealth(disk_folder)
        told.poll()
        assert told.figures() == DisksHealth(untold={"disk": health.NO_CONTROLLER})
        (disk_folder / "data").unlink()
    told.poll()
    assert told.figures().untold == {"disk": "No such file or directory"}


def test_nobody_waits_for_a_disk_that_takes_its_time(
    system: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "device_under", lambda folder: os.makedev(259, 0))
    answers = threading.Event()

    def ask(name: str) -> bytes:
        assert answers.wait(HUNG_S)
        return page()

    told = DiskHealth(tmp_path, system=system, records=tmp_path, ask=ask)
    assert told.figures() == told.figures() == DisksHealth()
    answers.set()
    wait_until(lambda: "nvme0" in told.figures().disks, HUNG_S, "it is told once it is known")


def test_each_disk_under_a_volume_is_told_or_why_not(
    system: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "device_under", lambda folder: os.makedev(9, 0))

    def ask(name: str) -> bytes:
        return page() if name == "nvme0" else refused(name)

    told = DiskHealth(tmp_path, system=system, records=tmp_path, ask=ask)
    told.poll()
    figures = told.figures()
    assert figures.disks.keys() == {"nvme0"} and figures.untold.keys() == {"nvme1"}
    assert figures.disks["nvme0"].media_errors == 1 << 56
