"""A target that is a folder of this machine, or one that is mounted here."""

import os
from collections.abc import Iterator
from pathlib import Path

from appliance.base.errors import TargetError, TargetRefused, TargetUnavailable
from appliance.drivers.files.folders import sync_folder
from appliance.drivers.hdfs.target import BLOCK_SIZE, Limiter
from appliance.formats.webhdfs import Entry

FLUSH_SIZE = 4 * BLOCK_SIZE  # durable at once: a whole file would keep the disk busy for long
_PASSES = (4, 5, 16, 28, 110, 116, 122)  # EINTR, EIO, EBUSY, ENOSPC, ETIMEDOUT, ESTALE, EDQUOT


# What was said in rooms is for the group that reads the archive, whatever this process' mask says.
FILE_MODE, FOLDER_MODE = 0o640, 0o750


class FolderTarget:
    """Files are whole and durable when they get their name."""

    def __init__(self, root: Path, *, rate_max: int = 0) -> None:
        self._root = root
        self._limiter = Limiter(rate_max)

    def describe(self) -> str:
        return str(self._root)

    def put(self, path: str, data: bytes) -> None:
        full_path = self._root / path
        try:
            _make(full_path.parent)
            with open(full_path, "wb") as file:
                os.fchmod(file.fileno(), FILE_MODE)
                for at in range(0, len(data), BLOCK_SIZE):
                    self._limiter.take(min(BLOCK_SIZE, len(data) - at))
                    file.write(memoryview(data)[at : at + BLOCK_SIZE])
                    if (at + BLOCK_SIZE) % FLUSH_SIZE == 0:
                        file.flush()
                        os.fdatasync(file.fileno())
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise _refusal(full_path, error) from error

    def read(self, path: str) -> Iterator[bytes]:
        full_path = self._root / path
        try:
            with open(full_path, "rb") as file:
                while block := file.read(BLOCK_SIZE):
                    self._limiter.take(len(block))
                    yield block
        except OSError as error:
            raise _refusal(full_path, error) from error

    def status(self, path: str) -> Entry | None:
        try:
            return _entry(self._root / path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise _refusal(self._root / path, error) from error

    def list(self, path: str) -> list[Entry]:
        found = []
        try:
            for name in sorted(os.listdir(self._root / path)):
                entry = self.status(f"{path}/{name}")
                if entry is not None:
                    found.append(entry)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise _refusal(self._root / path, error) from error
        return found

    def rename(self, source: str, destination: str, *, overwrite: bool) -> bool:
        self._limiter.take(0)
        full_path = self._root / destination
        try:
            _make(full_path.parent)
            if not overwrite and full_path.exists():
                return False
            os.replace(self._root / source, full_path)
            sync_folder(full_path.parent)
        except OSError as error:
            raise _refusal(full_path, error) from error
        return True

    def make_folder(self, path: str) -> None:
        full_path = self._root / path
        try:
            _make(full_path)
        except OSError as error:
            raise _refusal(full_path, error) from error

    def delete(self, path: str) -> bool:
        full_path = self._root / path
        try:
            full_path.unlink()
        except FileNotFoundError:
            return False
        except OSError as error:
            raise _refusal(full_path, error) from error
        return True

    def abort(self) -> None:
        self._limiter.stop()


def _make(folder: Path) -> None:
    """Make `folder` and what is missing above it; what is there keeps its mode."""
    missing = [full_path for full_path in (folder, *folder.parents) if not full_path.exists()]
    for full_path in reversed(missing):
        try:
            full_path.mkdir()
        except FileExistsError:
            continue  # made by another node meanwhile
        full_path.chmod(FOLDER_MODE)
    if not folder.is_dir():
        raise NotADirectoryError(20, "Not a directory", str(folder))


def _entry(full_path: Path) -> Entry:
    stat = full_path.stat()
    return Entry(full_path.name, stat.st_size, full_path.is_dir(), stat.st_mtime_ns // 1_000_000)


def _refusal(full_path: Path, error: OSError) -> TargetError:
    if error.errno in _PASSES:
        return TargetUnavailable(f"{full_path}: {error.strerror}")
    return TargetRefused(f"{full_path}: {error.strerror}; let this user read and write the folder")
