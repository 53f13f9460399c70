"""Small files that are whole or absent, whatever crashes, and locks that end with their process."""

import contextlib
import fcntl
import os
from pathlib import Path

from appliance.base.errors import ConfigurationError, StorageError
from appliance.drivers.files.folders import sync_folder


def write_durable(path: Path, data: str | bytes, mode: int = 0o644) -> None:
    """Put `data` at `path`: the name appears only when the bytes are durable."""
    raw = data.encode() if isinstance(data, str) else data
    fresh = path.with_name(path.name + ".new")
    with contextlib.suppress(FileNotFoundError):
        fresh.unlink()
    fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        os.fchmod(fd, mode)  # whatever the user's mask says
        written = 0
        while written < len(raw):
            written += os.write(fd, raw[written:])
        os.fsync(fd)
    finally:
        os.close(fd)
    fresh.rename(path)
    sync_folder(path.parent)


def lock_folder(folder: Path, name: str = ".lock") -> int:
    """Take `folder` for this process until it ends; the descriptor that holds the lock.

    ConfigurationError when another process has it: two of them on one folder are a mistake.
    """
    path = folder / name
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise unusable(path, error) from error
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        owner = os.pread(fd, 20, 0).decode(errors="replace").strip()
        os.close(fd)
        raise ConfigurationError(
            f"{folder} is in use by process {owner or 'unknown'}: stop that "
            "one first, or choose another folder"
        ) from error
    os.ftruncate(fd, 0)
    os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
    return fd


def unusable(path: Path, error: OSError) -> StorageError:
    """The sentence for a file or folder that the operating system refuses."""
    remedy = {
        "PermissionError": "let this user read and write it, or run as the user who owns it",
        "FileNotFoundError": "correct the path",
        "NotADirectoryError": "choose a folder",
    }.get(type(error).__name__, "free space there" if error.errno == 28 else "check the disk")
    return StorageError(f"{path}: {error.strerror}; {remedy}")
