"""A folder tree that an archive or the tables live in: on this machine or on HDFS.

A store is small and pickles, so that every task of Spark opens its own files. Paths are relative to
the store, with `/`. What must appear whole is written under another name and renamed.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple, Protocol, cast
from urllib.parse import unquote, urlsplit

from appliance.base.errors import ConfigurationError
from appliance.formats.webhdfs_call import Login
from appliance.reports.webhdfs import Hdfs

HDFS_HTTP_PORT = 9870  # of a NameNode, unless its settings say otherwise
HDFS_SCHEMES = ("hdfs", "webhdfs", "swebhdfs")


class Entry(NamedTuple):
    """One name in a folder."""

    name: str
    is_folder: bool
    size: int


class FileStore(Protocol):
    """What ingest needs of a folder tree."""

    @property
    def url(self) -> str:
        """As Spark's own readers name it."""

    def list(self, path: str) -> list[Entry]:
        """Sorted by name; empty when there is no such folder."""

    def size(self, path: str) -> int | None:
        """Bytes of a file; None when it is not there."""

    def open(self, path: str, offset: int, length: int) -> BinaryIO:
        """A stream over a part of a file; it ends early where the file does."""

    def put(self, path: str, source: Path) -> None:
        """Copy a local file to here; not atomic."""

    def write(self, path: str, data: bytes) -> None:
        """A small file, durable when this returns; not atomic."""

    def rename(self, path: str, target: str) -> bool:
        """Move a file to a name that is free; False when it was taken or `path` is not there."""

    def delete(self, path: str) -> None:
        """A file or a folder with all in it; no matter if it is not there."""

    def flush(self, path: str) -> None:
        """Make what was renamed into this folder outlive a loss of power."""


def read_all(store: FileStore, path: str, size_max: int = 256 << 20) -> bytes:
    """A whole small file. Raises FileNotFoundError."""
    with store.open(path, 0, size_max) as stream:
        return stream.read()


@dataclass(frozen=True, slots=True)
class LocalFileStore:
    """A folder of this machine, or one that all machines of the cluster see alike."""

    root: str

    @property
    def url(self) -> str:
        return Path(self.root).as_uri()

    def _at(self, path: str) -> Path:
        return Path(self.root, path)

    def list(self, path: str) -> list[Entry]:
        try:
            with os.scandir(self._at(path)) as found:
                return sorted(Entry(e.name, e.is_dir(), e.stat().st_size) for e in found)
        except (FileNotFoundError, NotADirectoryError):
            return []

    def size(self, path: str) -> int | None:
        try:
            return self._at(path).stat().st_size
        except (FileNotFoundError, NotADirectoryError):
            return None

    def open(self, path: str, offset: int, length: int) -> BinaryIO:
        file = open(self._at(path), "rb", buffering=0)
        file.seek(offset)
        return cast(BinaryIO, _Bounded(file, length))  # all of it that readers use

    def put(self, path: str, source: Path) -> None:
        target = self._at(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(source, target)
        _flush(target)

    def write(self, path: str, data: bytes) -> None:
        target = self._at(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
        _flush(target)

    def rename(self, path: str, target: str) -> bool:
        source, goal = self._at(path), self._at(target)
        goal.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(source, goal)  # unlike a rename it fails when the name is taken
        except (FileExistsError, FileNotFoundError):
            return False
        source.unlink()
        return True

    def delete(self, path: str) -> None:
        at = self._at(path)
        if at.is_dir() and not at.is_symlink():
            shutil.rmtree(at)
        else:
            at.unlink(missing_ok=True)

    def flush(self, path: str) -> None:
        _flush(self._at(path))


def _flush(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class _Bounded:
    """At most `length` bytes of an open file."""

    def __init__(self, file: BinaryIO, length: int) -> None:
        self._file, self._left = file, length

    def readinto(self, buffer: memoryview) -> int:
        count: int = self._file.readinto(buffer[: self._left])  # type: ignore[attr-defined]
        self._left -= count
        return count

    def read(self, size: int = -1) -> bytes:
        wanted = self._left if size < 0 else min(size, self._left)
        parts = []
        while wanted and (part := self._file.read(wanted)):
            parts.append(part)
            wanted -= len(part)
            self._left -= len(part)
        return b"".join(parts)

    def __enter__(self) -> _Bounded:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


@dataclass(frozen=True, slots=True)
class HdfsFileStore:
    """A folder of an HDFS, read and written over WebHDFS from every task."""

    url: str
    hdfs: Hdfs
    root: str

    def _at(self, path: str) -> str:
        return f"{self.root}/{path}".rstrip("/") or "/"

    def list(self, path: str) -> list[Entry]:
        found = self.hdfs.list(self._at(path))
        return sorted(Entry(*row) for row in found)

    def size(self, path: str) -> int | None:
        return self.hdfs.size(self._at(path))

    def open(self, path: str, offset: int, length: int) -> BinaryIO:
        return self.hdfs.open(self._at(path), offset, length)

    def put(self, path: str, source: Path) -> None:
        with source.open("rb") as file:
            self.hdfs.create(self._at(path), file, source.stat().st_size)
        source.unlink()

    def write(self, path: str, data: bytes) -> None:
        self.hdfs.create(self._at(path), data, len(data))

    def rename(self, path: str, target: str) -> bool:
        goal = self._at(target)
        self.hdfs.make_folder(goal.rsplit("/", 1)[0])
        return self.hdfs.rename(self._at(path), goal)

    def delete(self, path: str) -> None:
        self.hdfs.delete(self._at(path))

    def flush(self, path: str) -> None:
        """The NameNode's journal has done so."""


def file_store_of(url: str, *, http_address: str = "", login: Login | None = None) -> FileStore:
    """The store that `url` names: a path, file://, hdfs://, webhdfs:// or swebhdfs://.

    `http_address` is where the NameNode of an hdfs:// URL answers WebHDFS, host:port; it is the
    URL's host and port 9870 unless given.
    """
    parts = urlsplit(url)
    if parts.scheme in ("", "file"):
        path = unquote(parts.path) if parts.scheme else url
        return LocalFileStore(str(Path(path).absolute()))
    if parts.scheme not in HDFS_SCHEMES or not parts.hostname:
        allowed = "a path, file:///…, hdfs://…, webhdfs://… or swebhdfs://…"
        raise ConfigurationError(f"{url}: not a place that can be read; allowed: {allowed}")
    secure = parts.scheme == "swebhdfs" or http_address.startswith("https://")
    if parts.scheme == "hdfs":
        address = http_address.rpartition("://")[2] or f"{parts.hostname}:{HDFS_HTTP_PORT}"
    else:
        address = parts.netloc.rpartition("@")[2]
    who = login or Login()
    if parts.username and not who.user and not who.token:
        who = Login(user=parts.username)
    return HdfsFileStore(
        url.rstrip("/"), Hdfs(address, secure, who), unquote(parts.path).rstrip("/")
    )
