"""The power of a disk whose cache the shim plays: cut, it takes what was not durable.

The layout is that of `disk_cache.c`.
"""

import os
import random
import re
from pathlib import Path

import numpy as np

_SHIM = (Path(__file__).parent / "disk_cache.c").read_text()
_SIZES = {name: int(size) for name, size in re.findall(r"#define (\w+) (\d+)", _SHIM)}
SECTOR, ENTRIES, PATH = _SIZES["SECTOR"], _SIZES["ENTRIES"], _SIZES["PATH"]
FILES, NAMES = _SIZES["FILES"], _SIZES["NAMES"]
_FILES = SECTOR
_NAMES = _FILES + FILES * PATH
_ENTRIES = _NAMES + NAMES * PATH
ENTRY = np.dtype(
    [("used", "<u4"), ("file", "<u4"), ("offset", "<u8"), ("written", "<u8"), ("ended", "<u8")]
)
_BYTES = _ENTRIES + ENTRIES * ENTRY.itemsize


def cut(cache: Path, chance: random.Random) -> int:
    """Take what the cache alone held, when no process uses it; how much: sectors and names.

    A device writes back as it likes: half of the cuts take everything, the others part of it.
    """
    if not cache.exists():
        return 0
    share = chance.choice((1.0, 0.6))
    taken = 0
    with cache.open("r+b", buffering=0) as file:
        head = np.fromfile(file, "u1", _BYTES)
        paths = [_text(head[_FILES + i * PATH :][:PATH]) for i in range(FILES)]
        names = [_text(head[_NAMES + i * PATH :][:PATH]) for i in range(NAMES)]
        for name in names:
            if name and chance.random() < share:
                Path(name).unlink(missing_ok=True)
                taken += 1
        entries = head[_ENTRIES:_BYTES].view(ENTRY)
        for i in np.flatnonzero(entries["used"]).tolist():
            path = Path(paths[entries[i]["file"]])
            if path.exists() and chance.random() < share:
                _put_back(
                    path,
                    int(entries[i]["offset"]),
                    os.pread(file.fileno(), SECTOR, _BYTES + i * SECTOR),
                )
                taken += 1
        entries["used"] = 0
        os.pwrite(file.fileno(), entries.tobytes(), _ENTRIES)
        os.pwrite(file.fileno(), bytes(NAMES * PATH), _NAMES)
    return taken


def _text(raw: np.ndarray) -> str:
    return raw.tobytes().split(b"\0", 1)[0].decode()


def _put_back(path: Path, offset: int, data: bytes) -> None:
    with path.open("r+b", buffering=0) as file:
        file.seek(offset)
        file.write(data)
        os.fsync(file.fileno())
