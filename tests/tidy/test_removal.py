"""What a site has left is removed with its test, whatever it takes to remove a file in a thousand
pieces."""

import os
from pathlib import Path

from tests import removal

PIECE, PIECES = 4096, 64


def volume(path: Path) -> Path:
    """A file that is written here and there."""
    with path.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, 2 * PIECE * PIECES)
        for number in range(PIECES):
            os.pwrite(file.fileno(), b"x" * PIECE, 2 * number * PIECE)
        os.fsync(file.fileno())
    assert path.stat().st_blocks * 512 >= removal.LARGE
    return path


def test_a_file_in_many_pieces_becomes_zeros_of_its_size() -> None:
    with removal.folder_on_disk() as folder:
        path = volume(folder / "data")
        (folder / "note").write_text("small")
        removal.make_whole(folder)
        assert path.read_bytes() == bytes(2 * PIECE * PIECES)
        assert (folder / "note").read_text() == "small"


def test_what_has_another_name_or_is_one_keeps_its_bytes() -> None:
    with removal.folder_on_disk() as folder, removal.folder_on_disk() as elsewhere:
        linked, named = volume(elsewhere / "linked"), volume(elsewhere / "named")
        os.link(linked, folder / "linked")
        (folder / "named").symlink_to(named)
        removal.make_whole(folder)
        assert linked.read_bytes().count(b"x") == named.read_bytes().count(b"x") == PIECE * PIECES


def test_a_file_with_holes_takes_no_more_room() -> None:
    with removal.folder_on_disk() as folder:
        path = volume(folder / "data")
        os.truncate(path, 1 << 30)
        before = path.stat().st_blocks
        removal.make_whole(folder)
        assert path.stat().st_blocks == before


def test_a_folder_is_gone_with_its_test() -> None:
    with removal.folder_on_disk() as folder:
        (folder / "site").mkdir()
        volume(folder / "site" / "data")
    assert not folder.exists()
