"""`tigerchat flash`: an image on a loop device is the image; what is refused changes nothing."""

import binascii
import hashlib
import os
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance.__main__ import main
from appliance.base.limits import MIB
from appliance.drivers.nvme.device import open_alone
from tests.loop_device import loop_device

SIZE = 12 * MIB + 3 * 512  # neither whole steps nor whole sectors of the device


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """A disk image with a partition that has something in it."""
    last = SIZE // 512 - 1
    row = os.urandom(32) + struct.pack("<QQQ", 2048, 10239, 0)
    rows = row.ljust(128 * 128, b"\0")
    content = bytearray(SIZE)
    content[MIB : 5 * MIB] = os.urandom(4 * MIB)
    for own, other, at in ((1, last, 2), (last, 1, last - 32)):
        content[own * 512 : own * 512 + 92] = table(own, other, at, rows)
        content[at * 512 : at * 512 + len(rows)] = rows
    file = tmp_path / "disk.img"
    file.write_bytes(content)
    return file


def table(own: int, other: int, at: int, rows: bytes) -> bytes:
    """One of the two headers of a GUID partition table."""
    layout = struct.Struct("<8s4sIIIQQQQ16sQIII")
    crc = 0
    for _ in range(2):
        raw = layout.pack(
            b"EFI PART", b"\0\0\1\0", 92, crc, 0, own, other, 34, 9999, b"the disk's id...",
            at, 128, 128, binascii.crc32(rows),
        )  # fmt: skip
        crc = binascii.crc32(raw)
    return raw


@pytest.fixture(params=[512, 4096])
def device(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    with loop_device(tmp_path / "target", 16 * MIB, sector_size=request.param) as made:
        yield made


def flash(*words: object) -> int:
    return main(["flash", *map(str, words)])


def refused(
    capsys: pytest.CaptureFixture[str], device: Path, sentence: str, *words: object
) -> None:
    before = hashlib.sha256(device.read_bytes()).digest()
    assert flash(*words) == 1
    assert sentence in capsys.readouterr().err
    assert hashlib.sha256(device.read_bytes()).digest() == before


def test_image_is_written_verified_and_equal(
    image: Path, device: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert flash(image, device) == 0
    told = capsys.readouterr().out
    assert "verified: 12 of 12 MiB" in told
    assert hashlib.sha256(image.read_bytes()).hexdigest() in told
    assert device.read_bytes()[:SIZE] == image.read_bytes()


def test_what_is_on_a_device_is_given_up_twice_or_kept(
    image: Path, device: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    subprocess.run(["mkfs.ext4", "-q", "-F", str(device)], check=True)
    for words in ([], ["--erase"]):
        refused(capsys, device, "carries an ext2, ext3 or ext4", image, device, *words)
    assert flash(image, device, "--erase", "--erase") == 0


def test_images_cut_short_or_damaged_are_refused(
    image: Path, device: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = image.read_bytes()
    for content, sentence in (
        (whole[:-512], f"was cut short: {SIZE - 512} of {SIZE} bytes"),
        (whole[: 5 * MIB], "was cut short"),
        (whole + bytes(512), "512 bytes too many"),
        (whole[:-512] + bytes(512), "lacks the copy of its partition table"),
        (whole[:530] + b"?" + whole[531:], "damaged partition table"),
        (whole[:1030] + b"?" + whole[1031:], "damaged partition table"),
        (bytes(SIZE), "no disk image"),
    ):
        image.write_bytes(content)
        refused(capsys, device, sentence, image, device)


def test_devices_in_use_too_small_or_none_are_refused(
    image: Path, device: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    holder = open_alone(device)
    try:
        refused(capsys, device, "is in use: it is mounted, or open", image, device)
    finally:
        os.close(holder)
    with loop_device(tmp_path / "small", 8 * MIB) as small:
        refused(capsys, small, "name a larger device", image, small)
    refused(capsys, device, "is no block device", image, tmp_path / "disk.img")
