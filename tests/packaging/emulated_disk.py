"""An NVMe controller's device node, for kernels that have no such disk: a file of a file system in
user space, which takes the one question that nodes ask, and answers as the kernel's driver does.

Who asks must have the right that the driver wants (CAP_SYS_ADMIN), and the answer lands in its
memory, where its command says. What is not there: the class of devices by which a unit is let at
them (`DeviceAllow=char-nvme`), as the file is no device.
"""

import ctypes
import errno
import os
import stat
import struct
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from appliance.drivers.nvme import health
from tests.patience import HUNG_S

# Of <linux/fuse.h>: headers, and the bodies that are needed here.
_IN, _OUT = struct.Struct("<IIQQIIIHH"), struct.Struct("<IiQ")
_LOOKS, _OPENS, _FLUSHES = (3, 52), (14,), (18, 25)  # getattr; open; release, flush
_INIT, _IOCTL, _FORGETS = 26, 39, (2, 36, 42)  # the last are not answered
_INIT_OUT = struct.Struct("<IIIIHHII32x")
_ATTRIBUTES = struct.Struct("<76xII20x")  # of all that is zero but its mode and links
_IOCTL_IN, _IOCTL_OUT = struct.Struct("<QIIQII"), struct.Struct("<iIII")
_VERSION, _REQUEST_MAX = (7, 31), 1 << 17
_GET_LOG_PAGE, _SYS_ADMIN = 0x02, 21


class EmulatedDisk:
    """Lies at `path`, an empty file; answers with `page` and counts in `asked`."""

    def __init__(self, path: Path, page: bytes) -> None:
        self.page, self.asked = page, 0
        self._fd = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
        self.path = path
        words = f"fd={self._fd},rootmode={stat.S_IFREG:o},user_id=0,group_id=0,allow_other"
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.mount(b"nvme", os.fsencode(path), b"fuse", 0, words.encode()):
            code = ctypes.get_errno()
            os.close(self._fd)
            raise OSError(code, os.strerror(code))
        self._thread = threading.Thread(target=self._serve, name="disk", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Once nobody has it open, and no mount namespace has it."""
        subprocess.run(["umount", "--lazy", self.path], check=True)
        self._thread.join(HUNG_S)

    def _serve(self) -> None:
        try:
            while True:
                request = os.read(self._fd, _REQUEST_MAX)
                _, code, number, _, _, _, process, _, _ = _IN.unpack_from(request)
                if code in _FORGETS:
                    continue
                error, body = self._answer(code, process, request[_IN.size :])
                os.write(self._fd, _OUT.pack(_OUT.size + len(body), -error, number) + body)
        except OSError as error:
            if error.errno != errno.ENODEV:  # the file system is gone
                raise
        finally:
            os.close(self._fd)  # whoever waits for an answer waits no more

    def _answer(self, code: int, process: int, body: bytes) -> tuple[int, bytes]:
        """(error, what follows the header)."""
        if code == _INIT:
            return 0, _INIT_OUT.pack(*_VERSION, 0, 0, 0, 0, 4096, 0)
        if code in _LOOKS:
            return 0, _ATTRIBUTES.pack(stat.S_IFREG | 0o600, 1)
        if code in _OPENS:
            return 0, struct.pack("<QII", 0, 0, 0)
        if code in _FLUSHES:
            return 0, b""
        if code != _IOCTL:
            return errno.ENOSYS, b""
        _, _, question, _, size, _ = _IOCTL_IN.unpack_from(body)
        if question != health._ADMIN:
            return errno.ENOTTY, b""
        command = body[_IOCTL_IN.size : _IOCTL_IN.size + size]
        return self._admin(process, command)

    def _admin(self, process: int, command: bytes) -> tuple[int, bytes]:
        (held,) = (
            int(line.split()[1], 16)
            for line in Path(f"/proc/{process}/status").read_text().splitlines()
            if line.startswith("CapEff:")
        )
        if not held >> _SYS_ADMIN & 1:
            return errno.EACCES, b""
        words = health._COMMAND.unpack(command)
        address, size = words[7], words[9]
        if words[0] != _GET_LOG_PAGE or size != len(self.page):
            return errno.EINVAL, b""
        with Path(f"/proc/{process}/mem").open("r+b", buffering=0) as memory:
            memory.seek(address)
            memory.write(self.page)
        self.asked += 1
        return 0, _IOCTL_OUT.pack(0, 0, 0, 0) + command


@contextmanager
def emulated_disk(folder: Path, page: bytes) -> Iterator[EmulatedDisk]:
    """In `folder`: `nvme0`, the node; `class`, what /sys/class tells of it."""
    path = folder / "nvme0"
    path.touch()
    (folder / "class/nvme/nvme0").mkdir(parents=True)
    disk = EmulatedDisk(path, page)
    try:
        yield disk
    finally:
        disk.close()
