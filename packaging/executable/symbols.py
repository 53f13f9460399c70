"""Symbols of native libraries: two thirds of their size, and of no use at a server."""

import shutil
import subprocess
from pathlib import Path

import contents


def removed(binaries: list[tuple[str, str, str]], folder: Path) -> list[tuple[str, str, str]]:
    """The table of binaries with stripped copies in `folder` as their sources.

    `strip` is run by us and not by PyInstaller, which would run it over every library.
    """
    shutil.rmtree(folder, ignore_errors=True)
    kept, copies = [], []
    for name, source, kind in binaries:
        if kind in ("BINARY", "EXTENSION") and not name.startswith(contents.UNSTRIPPED):
            copy = folder / name
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, copy)
            shutil.copymode(source, copy)
            source = str(copy)
            copies.append(source)
        kept.append((name, source, kind))
    subprocess.run(["strip", "--strip-unneeded", *copies], check=True)
    return kept
