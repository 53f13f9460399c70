"""Which file a volume was when it was open last: written into its superblock, compared at the next
open.

A copy of a volume is equal in all but this: a file system gives every file a number and the time at
which it was made, and a copy gets its own. What is zero is not known, and tells nothing.
"""

from typing import NamedTuple

import numpy as np

from appliance.base.layout import struct_of
from appliance.base.padding import is_zero

ID_SIZE = 16

VOLUME_FILE = np.dtype(
    [
        ("inode", "<u8"),  # of the data file; 0 on a device
        ("birth_ns", "<u8"),  # when it was made, since 1970; 0 where the file system does not tell
        ("volume_id", "V16"),  # as `volume.json` has it, or the label of a device
    ]
)
VOLUME_FILE_SIZE = VOLUME_FILE.itemsize
assert VOLUME_FILE_SIZE == 32
_STRUCT = struct_of(VOLUME_FILE)


class VolumeFile(NamedTuple):
    """The file of a volume. Zeros: not known."""

    inode: int = 0
    birth_ns: int = 0
    volume_id: bytes = bytes(ID_SIZE)

    def is_other(self, than: "VolumeFile") -> bool:
        """Whether something that is known of both differs."""
        pairs = zip(self._known(), than._known(), strict=True)
        return any(mine and theirs and mine != theirs for mine, theirs in pairs)

    def completed(self, by: "VolumeFile") -> "VolumeFile":
        """This one; what is not known of it as `by` has it."""
        return VolumeFile(
            self.inode or by.inode,
            self.birth_ns or by.birth_ns,
            by.volume_id if is_zero(self.volume_id) else self.volume_id,
        )

    def _known(self) -> tuple[int, int, bytes]:
        return self.inode, self.birth_ns, b"" if is_zero(self.volume_id) else self.volume_id

    def __str__(self) -> str:
        """As an operator finds it by `stat` and in `volume.json`."""
        return f"inode {self.inode}, made at {self.birth_ns} ns, volume {self.volume_id.hex()}"


NOT_KNOWN = VolumeFile()


def encode_volume_file(file: VolumeFile) -> bytes:
    """32 bytes."""
    assert len(file.volume_id) == ID_SIZE
    return _STRUCT.pack(*file)


def decode_volume_file(raw: bytes | memoryview) -> VolumeFile:
    """What lies in 32 bytes."""
    return VolumeFile(*_STRUCT.unpack(raw))
