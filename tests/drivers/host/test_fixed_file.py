"""A file of a fixed size: written in place, found again, set aside."""

import errno
import os
from pathlib import Path

import pytest

from appliance.base.errors import StorageError
from appliance.drivers.host.fixed_file import ASIDE, FixedFile


def test_pieces_are_where_they_were_put_and_the_size_stays(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    file = FixedFile(path, 100)
    assert file.open() is None and not file.is_open()
    file.make([(0, b"head"), (96, b"tail")])
    assert path.read_bytes() == b"head" + bytes(92) + b"tail"
    assert path.stat().st_mode & 0o777 == 0o600
    file.write([(50, b"here"), (2, b"ROW")])
    file.close()
    again = FixedFile(path, 100)
    found = again.open()
    assert found == path.read_bytes() and len(found) == 100
    assert found[:5] == b"heROW" and found[50:54] == b"here"
    again.write([(50, b"more")])
    assert path.read_bytes()[50:54] == b"more"
    again.close()
    assert [each.name for each in tmp_path.iterdir()] == ["rows"]


def test_one_that_is_too_long_is_read_no_further_than_tells_so(tmp_path: Path) -> None:
    (tmp_path / "rows").write_bytes(bytes(5000))
    assert FixedFile(tmp_path / "rows", 100).open() == bytes(101)


def test_what_is_set_aside_takes_the_place_of_what_was_before(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    for text in (b"one", b"two"):
        path.write_bytes(text)
        file = FixedFile(path, 3)
        file.open()
        assert file.set_aside() == tmp_path / f"rows{ASIDE}" and not file.is_open()
    assert [each.name for each in tmp_path.iterdir()] == [f"rows{ASIDE}"]
    assert (tmp_path / f"rows{ASIDE}").read_bytes() == b"two"


def test_what_cannot_be_is_said_in_words(tmp_path: Path) -> None:
    (tmp_path / "rows").mkdir()
    file = FixedFile(tmp_path / "rows", 100)
    with pytest.raises(StorageError, match="rows: Is a directory"):
        file.open()
    with pytest.raises(StorageError, match="rows: Is a directory"):
        file.make([(0, b"x")])
    assert not file.is_open()
    with pytest.raises(StorageError, match="nowhere"):
        FixedFile(tmp_path / "nowhere" / "rows", 100).make([])


def test_one_that_could_not_be_filled_is_none_and_is_made_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name appears with the pieces: else what is written later would be found by nobody."""
    path = tmp_path / "rows"
    file = FixedFile(path, 100)

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as scarce:
        scarce.setattr(os, "pwrite", full)
        with pytest.raises(StorageError, match="rows: No space left on device; free space there"):
            file.make([(0, b"head")])
    assert not file.is_open() and not path.exists()
    file.make([(0, b"head")])
    file.close()
    assert FixedFile(path, 100).open() == b"head" + bytes(96)
