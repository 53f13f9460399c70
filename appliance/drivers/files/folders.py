"""Folders whose names are durable."""

import os
from pathlib import Path


def sync_folder(folder: Path) -> None:
    """Make names made or removed in `folder` durable."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
