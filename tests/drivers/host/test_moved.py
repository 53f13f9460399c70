"""The word that a volume was moved lets in the file that it names, and is taken away when it is
done."""

import dataclasses
from pathlib import Path

from appliance.drivers.host.moved import is_said_moved, say_moved
from appliance.formats.superblock import Superblock
from appliance.formats.volume_file import NOT_KNOWN, VolumeFile
from tests.formats.test_superblock import example

WAS = VolumeFile(1, 10, b"v" * 16)
NOW = VolumeFile(2, 20, b"v" * 16)


def block(shard: int, file: VolumeFile) -> Superblock:
    return dataclasses.replace(example(), shard=shard, file=file)


def test_the_word_is_about_one_file_of_one_shard(tmp_path: Path) -> None:
    assert not is_said_moved(tmp_path, block(0, WAS), NOW)
    say_moved(tmp_path, 0, NOW)
    assert is_said_moved(tmp_path, block(0, WAS), NOW)
    assert is_said_moved(tmp_path, block(0, WAS), NOW), "until the superblock names the file"
    assert not is_said_moved(tmp_path, block(1, WAS), NOW)
    for other in (NOW._replace(inode=3), NOW._replace(birth_ns=21), NOW._replace(birth_ns=0)):
        assert not is_said_moved(tmp_path, block(0, WAS), other)


def test_the_word_goes_once_the_superblock_names_the_file(tmp_path: Path) -> None:
    say_moved(tmp_path, 0, NOW)
    assert not is_said_moved(tmp_path, block(0, NOW), NOW)
    assert not list(tmp_path.iterdir())
    assert not is_said_moved(tmp_path, block(0, WAS), NOW)


def test_a_word_that_nobody_can_read_is_none(tmp_path: Path) -> None:
    for text in (b"", b"{", b"[]", b"\xff"):
        (tmp_path / "shard-0.moved").write_bytes(text)
        assert not is_said_moved(tmp_path, block(0, WAS), NOW)
    assert not is_said_moved(tmp_path, block(0, NOT_KNOWN), NOW)
