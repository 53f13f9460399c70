"""The health of the disks under a volume, from the log page of their NVMe controllers.

The kernel lets only root ask a controller, and a node runs without any right. So a unit of its own,
`tigerchat-disks`, asks once a minute by `tigerchat disks --record` and leaves each page as it came
in RECORDS, named as its controller; a node asks where it may, else it reads what lies there.
"""

import ctypes
import errno
import fcntl
import os
import re
import stat
import struct
import threading
import time
from collections.abc import Callable
from pathlib import Path

from appliance.base.errors import FormatError
from appliance.drivers.nvme.device import DATA
from appliance.formats.nvme_health import HEALTH_SIZE, Health, decode_health
from appliance.formats.status.replica import DisksHealth

RECORDS = Path("/run/tigerchat-disks")
SYSTEM = Path("/sys")
RECORD_S_MAX = 600.0  # an older page tells nothing of now
POLL_EVERY_S = 60.0
NO_CONTROLLER = "it is no NVMe disk of this machine"

_ADMIN = 0xC0484E41  # NVME_IOCTL_ADMIN_CMD of <linux/nvme_ioctl.h>, with the struct below
_COMMAND = struct.Struct("<BBHIIIQQIIIIIIIIII")
_GET_LOG_PAGE, _HEALTH_PAGE, _ALL_NAMESPACES = 0x02, 0x02, 0xFFFFFFFF
_TIMEOUT_MS = 5000
_CONTROLLER, _SUBSYSTEM = re.compile(r"nvme\d+"), re.compile(r"nvme-subsys\d+")


def controllers(system: Path = SYSTEM) -> list[str]:
    """The names of all of this machine, as "nvme0"."""
    return sorted(path.name for path in system.glob("class/nvme/nvme*"))


def controllers_of(device: int, system: Path = SYSTEM) -> set[str]:
    """Of the disks that a block device lies on: a namespace, a partition, or what is put together
    from several. Empty for other disks."""
    path = system / f"dev/block/{os.major(device)}:{os.minor(device)}"
    return _controllers(path.resolve()) if path.exists() else set()


def _controllers(path: Path) -> set[str]:
    below = [entry.resolve() for entry in path.glob("slaves/*")]
    if (path / "partition").exists():
        below += [entry.resolve() for entry in path.parent.glob("slaves/*")]
    found = {name for disk in below for name in _controllers(disk)}
    for folder in (path, *path.parents):
        if _CONTROLLER.fullmatch(folder.name):
            found.add(folder.name)
        elif _SUBSYSTEM.fullmatch(folder.name):  # a namespace with several ways to it
            found |= {way.name for way in folder.iterdir() if _CONTROLLER.fullmatch(way.name)}
    return found


def device_under(folder: Path) -> int:
    """The number of the block device under a volume: its own, or that of its file system."""
    state = (folder / DATA).stat()
    return state.st_rdev if stat.S_ISBLK(state.st_mode) else state.st_dev


def ask(controller: str) -> bytes:
    """The health page of a controller, now. OSError; EACCES for who is not root."""
    page = ctypes.create_string_buffer(HEALTH_SIZE)
    words = (HEALTH_SIZE // 4 - 1) << 16 | _HEALTH_PAGE
    command = bytearray(
        _COMMAND.pack(
            *(_GET_LOG_PAGE, 0, 0, _ALL_NAMESPACES, 0, 0, 0, ctypes.addressof(page)),
            *(0, HEALTH_SIZE, words, 0, 0, 0, 0, 0, _TIMEOUT_MS, 0),
        )
    )
    fd = os.open(f"/dev/{controller}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        status = fcntl.ioctl(fd, _ADMIN, command)
    finally:
        os.close(fd)
    if status:
        raise OSError(errno.EIO, f"the controller refuses with status {status:#x}")
    return page.raw


def read_record(controller: str, records: Path = RECORDS) -> bytes:
    """The page that was left there. OSError where there is none, or only an old one."""
    with (records / controller).open("rb") as file:
        age_s = time.time() - os.fstat(file.fileno()).st_mtime
        if age_s > RECORD_S_MAX:
            raise OSError(errno.ESTALE, f"the page in {records} is {age_s / 60:.0f} min old")
        return file.read(HEALTH_SIZE + 1)


def health_of(
    controller: str, records: Path = RECORDS, ask: Callable[[str], bytes] = ask
) -> Health | str:
    """Its health, or why it is not told."""
    try:
        try:
            return decode_health(ask(controller))
        except OSError as refused:
            try:
                return decode_health(read_record(controller, records))
            except FileNotFoundError:
                raise refused from None
    except PermissionError:
        return f"only root may ask it: `systemctl start tigerchat-disks.timer` leaves it {records}"
    except (OSError, FormatError) as error:
        return getattr(error, "strerror", None) or str(error)


class DiskHealth:
    """Of the disks under the volume in `folder`: looked at once a minute, by a thread that ends
    when it has, since a sick disk may take its time to answer."""

    def __init__(
        self,
        folder: Path,
        *,
        system: Path = SYSTEM,
        records: Path = RECORDS,
        ask: Callable[[str], bytes] = ask,
    ) -> None:
        self._folder, self._system, self._records, self._ask = folder, system, records, ask
        self._next_s = 0.0
        self._thread: threading.Thread | None = None
        self._found = DisksHealth()

    def figures(self) -> DisksHealth:
        """As of the last look."""
        now_s = time.monotonic()
        if now_s >= self._next_s and (self._thread is None or not self._thread.is_alive()):
            self._next_s = now_s + POLL_EVERY_S
            self._thread = threading.Thread(target=self.poll, name="disk-health", daemon=True)
            self._thread.start()
        return self._found

    def poll(self) -> None:
        """Ask now, however long it takes."""
        try:
            names = controllers_of(device_under(self._folder), self._system)
        except OSError as error:
            self._found = DisksHealth(untold={"disk": error.strerror or str(error)})
            return
        told = {name: health_of(name, self._records, self._ask) for name in sorted(names)}
        untold = {name: found for name, found in told.items() if isinstance(found, str)}
        self._found = DisksHealth(
            disks={name: it for name, it in told.items() if isinstance(it, Health)},
            untold=untold if told else {"disk": NO_CONTROLLER},
        )
