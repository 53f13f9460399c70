"""The word of an operator that a volume which is another file than it was is the same all the same.

It lies beside the volume (`shard-S.moved`) and names the very file that it is about, so that it
lets in no other one, whatever is put there later. Its replica reads it at each start; once the
superblock names that file the word has done its work, and goes with the start after.
"""

import contextlib
import json
from pathlib import Path

from appliance.base.json_text import parse_json
from appliance.drivers.files.folders import sync_folder
from appliance.drivers.host.durable_file import write_durable
from appliance.formats.superblock import Superblock
from appliance.formats.volume_file import VolumeFile


def _name(shard: int) -> str:
    return f"shard-{shard}.moved"


def say_moved(node: Path, shard: int, file: VolumeFile) -> None:
    """Let the replica of `shard` in this node's folder work on `file`."""
    write_durable(node / _name(shard), json.dumps(_plain(file)) + "\n")


def is_said_moved(node: Path, block: Superblock, now: VolumeFile) -> bool:
    """Whether the volume with this superblock was said to be `now`."""
    path = node / _name(block.shard)
    try:
        said = parse_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False  # nobody has said so, or nobody can read it
    if not now.is_other(than=block.file):
        with contextlib.suppress(OSError):  # it names no other file: left there it does no harm
            path.unlink()
            sync_folder(node)
        return False
    return bool(said == _plain(now))


def _plain(file: VolumeFile) -> dict[str, object]:
    return {**file._asdict(), "volume_id": file.volume_id.hex()}
