"""The disk of the image, put together without a mount or a loop device.

1 MiB    esp      FAT32, EFI/BOOT/BOOTX64.EFI: kernel, initrd and command line in one file
then     root     ext4 that says of itself that it is read-only
then     state    ext4 with what the machine keeps: /var, and changes of /etc; grows at the first
                  start to the end of the disk
"""

import os
import re
import shutil
import subprocess
import uuid
from dataclasses import dataclass
from pathlib import Path

from tools.fresh_chroot import Failure, execute

MIB = 1 << 20
ESP_SIZE, STATE_SIZE = 128 * MIB, 512 * MIB
ROOT_SPARE = 48 * MIB  # for what a file system needs beside its files
SECTOR_SIZE = 512
ESP_TYPE = "C12A7328-F81F-11D2-BA4B-00A0C93EC93B"
ROOT_TYPE = "4F68BCE3-E8CD-4DB1-96E7-FBCAF984B709"  # x86-64
STATE_TYPE = "0FC63DAF-8483-4772-8E79-3D69D8477DE4"
READ_ONLY = "GUID:60"  # bit of a partition's attributes
STUB = Path("/usr/lib/systemd/boot/efi/linuxx64.efi.stub")
BOOT_FILE = "BOOTX64.EFI"  # what firmware starts that was told of nothing else
# The last console is the one of messages; a kernel that gives up starts again after so long. What
# lies beside the root is not mounted because it is there: an ESP that is open when power goes may
# start no machine any more.
COMMAND_LINE = (
    "root=PARTUUID={root} rootfstype=ext4 ro console=ttyS0,115200 console=tty0 quiet panic=30 "
    "systemd.show_status=no systemd.gpt_auto=no"
)
_SECTION = re.compile(r"^\s*\d+ (\.\w+)\s+([0-9a-f]{8})\s+([0-9a-f]{16})", re.MULTILINE)
_PAGE = 4096
_COPY_STEP = 4 * MIB
WITHIN_S = 1800


@dataclass(frozen=True)
class Partition:
    """One of the disk, and the file that holds what it begins with."""

    name: str
    type: str
    content: Path
    size: int
    id: str
    attributes: str = ""


def make_disk(path: Path, root: Path, state: Path, kernel: Path, initrd: Path) -> None:
    """The image at `path` from the trees `root` and `state`, by files that lie beside them."""
    folder = root.parent
    root_id = str(uuid.uuid4())
    boot = folder / BOOT_FILE
    make_boot_file(boot, kernel, initrd, root, COMMAND_LINE.format(root=root_id))
    esp, root_file, state_file = (folder / name for name in ("esp.fs", "root.fs", "state.fs"))
    make_esp(esp, boot)
    root_size = make_root_file(root_file, root)
    make_ext4(state_file, state, STATE_SIZE, "state")
    partitions = [
        Partition("esp", ESP_TYPE, esp, ESP_SIZE, str(uuid.uuid4())),
        Partition("root", ROOT_TYPE, root_file, root_size, root_id, READ_ONLY),
        Partition("state", STATE_TYPE, state_file, STATE_SIZE, str(uuid.uuid4())),
    ]
    fresh = path.with_name(f"{path.name}.new")
    lay_out(fresh, partitions)
    fresh.rename(path)


def make_boot_file(boot: Path, kernel: Path, initrd: Path, root: Path, command_line: str) -> None:
    """Put all that firmware has to start behind the stub that starts it."""
    line = boot.with_name("cmdline")
    line.write_bytes(command_line.encode() + b"\0")
    told = execute(["objdump", "--section-headers", str(STUB)])
    ends = [int(size, 16) + int(at, 16) for _, size, at in _SECTION.findall(told)]
    if not ends:
        raise Failure(f"{STUB} has no sections: is it the stub of systemd-boot?")
    at, words = max(ends), ["objcopy"]
    # The kernel last: unpacking itself it writes behind its end.
    parts = {
        ".osrel": root / "usr/lib/os-release",
        ".cmdline": line,
        ".initrd": initrd,
        ".linux": kernel,
    }
    for section, file in parts.items():
        at = -(-at // _PAGE) * _PAGE
        words += ["--add-section", f"{section}={file}"]
        words += ["--change-section-vma", f"{section}={at:#x}"]
        at += file.stat().st_size
    execute([*words, str(STUB), str(boot)])


def make_esp(esp: Path, boot: Path) -> None:
    if boot.stat().st_size > ESP_SIZE - 4 * MIB:
        raise Failure(f"{boot.name} has {boot.stat().st_size // MIB} MiB: the ESP is too small")
    truncate(esp, ESP_SIZE)
    execute(["mkfs.vfat", "-F", "32", "-n", "ESP", str(esp)])
    execute(["mmd", "-i", str(esp), "::/EFI", "::/EFI/BOOT"])
    execute(["mcopy", "-i", str(esp), str(boot), f"::/EFI/BOOT/{BOOT_FILE}"])


def make_root_file(file: Path, root: Path) -> int:
    """A file system that no kernel mounts for writing; its size."""
    blocks = inodes = 0
    for place, folders, files in os.walk(root):
        inodes += len(folders) + len(files)
        blocks += sum(1 + -(-os.lstat(Path(place, name)).st_size // _PAGE) for name in files)
        blocks += len(folders)
    size = -(-(blocks * _PAGE + inodes * 256 + ROOT_SPARE) // MIB) * MIB
    make_ext4(file, root, size, "root", "-O", "^has_journal", "-N", str(inodes + 1024))
    execute(["tune2fs", "-O", "read-only", str(file)])
    return size


def make_ext4(file: Path, tree: Path, size: int, label: str, *more: str) -> None:
    truncate(file, size)
    words = ["mke2fs", "-q", "-t", "ext4", "-m", "0", "-L", label, "-E", "root_owner=0:0", *more]
    execute([*words, "-d", str(tree), str(file)], timeout_s=WITHIN_S)


def lay_out(path: Path, partitions: list[Partition]) -> None:
    """Write the table, then what each partition begins with; holes stay holes."""
    at, rows = MIB, ["label: gpt"]
    starts = []
    for part in partitions:
        attributes = f', attrs="{part.attributes}"' if part.attributes else ""
        rows.append(
            f"start={at // SECTOR_SIZE}, size={part.size // SECTOR_SIZE}, type={part.type}, "
            f"uuid={part.id}, name={part.name}{attributes}"
        )
        starts.append(at)
        at += part.size
    truncate(path, at + MIB)
    table = "\n".join([*rows, ""])
    done = subprocess.run(
        ["sfdisk", "--quiet", str(path)], input=table, check=False, capture_output=True, text=True
    )
    if done.returncode:
        raise Failure(f"sfdisk: {done.stderr.strip()}")
    with path.open("r+b") as disk:
        for part, start in zip(partitions, starts, strict=True):
            with part.content.open("rb") as content:
                copy_into(content.fileno(), disk.fileno(), start)


def copy_into(source: int, target: int, start: int) -> None:
    """Copy what a sparse file holds to `start` of another one."""
    at, size = 0, os.fstat(source).st_size
    while at < size:
        try:
            at = os.lseek(source, at, os.SEEK_DATA)
        except OSError:  # nothing but a hole from here on
            return
        end = os.lseek(source, at, os.SEEK_HOLE)
        while at < end:
            piece = os.pread(source, min(_COPY_STEP, end - at), at)
            os.pwrite(target, piece, start + at)
            at += len(piece)


def truncate(path: Path, size: int) -> None:
    """A file of `size` bytes that takes none."""
    with path.open("wb") as file:
        file.truncate(size)


def needed() -> list[str]:
    """What is missing here to build an image."""
    programs = ("mkfs.vfat", "mcopy", "sfdisk", "mke2fs", "objcopy", "unshare")
    missing = [name for name in programs if not shutil.which(name)]
    return missing + ([] if STUB.exists() else [str(STUB)])
