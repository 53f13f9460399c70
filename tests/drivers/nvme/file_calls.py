"""What this process has files do, in order."""

import os
from typing import Any

import pytest


def watch_files(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Each flush and each read from now on, with the file it was of; the list grows."""
    told: list[tuple[str, str]] = []

    def watch(name: str) -> None:
        call = getattr(os, name)

        def watched(fd: int, *arguments: Any) -> Any:
            result = call(fd, *arguments)
            told.append((name, os.readlink(f"/proc/self/fd/{fd}")))
            return result

        monkeypatch.setattr(os, name, watched)

    for name in ("fdatasync", "fsync", "preadv"):
        watch(name)
    return told
