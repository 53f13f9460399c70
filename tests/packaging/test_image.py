"""The disk image, taken apart without starting it: partitions, boot file, root, state.

Its kernel, its initrd and its program are a few bytes here: what is shown is where all of it lies
and how it is set, not that a machine starts from it.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from appliance import VERSION
from appliance.formats.partition_table import parse_partition_table
from tests.packaging.test_installed import make
from tests.patience import HUNG_S
from tests.system.local_site import TOP

pytestmark = pytest.mark.root
MIB, SECTOR_SIZE = 1 << 20, 512
KERNEL = b"MZ, and then a kernel\n" * 1000
# Stands for the one of Debian: it packs what the image gives it, as text.
MKINITRAMFS = """#!/bin/sh
cd /usr/share/initramfs-tools
{ echo "initrd of $3"; cat hooks/tigerchat scripts/local-bottom/tigerchat; } >"$2"
"""
# Units of packages that the base for containers lacks.
LACKING = ("systemd-resolved", "systemd-timesyncd")
UNIT = "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n"


@dataclass
class Image:
    """One that was built."""

    path: Path
    rows: dict[str, dict[str, object]]

    def begin(self, name: str) -> int:
        """The byte at which a partition begins."""
        return int(str(self.rows[name]["start"])) * SECTOR_SIZE

    def part(self, name: str) -> str:
        """A partition, as tools of its file system open it."""
        return f"{self.path}?offset={self.begin(name)}"

    def debugfs(self, part: str, request: str) -> str:
        return tool("debugfs", "-R", request, self.part(part))

    def text(self, part: str, name: str) -> str:
        return self.debugfs(part, f"cat {name}")

    def mode(self, part: str, name: str) -> str:
        """Type, rights and owner, or where a link leads."""
        told = self.debugfs(part, f"stat {name}")
        assert "Inode:" in told, f"{name} is not there: {told}"
        link = re.search(r'Fast link dest: "(.*)"', told)
        kind, rights, owner = (
            re.search(rf"{word}:\s+(\w+)", told) for word in ("Type", "Mode", "User")
        )
        assert kind and rights and owner
        return link[1] if link else f"{kind[1]} {rights[1]} {owner[1]}"

    def names(self, part: str, folder: str) -> set[str]:
        told = self.debugfs(part, f"ls -p {folder}")
        found = {line.split("/")[5] for line in told.splitlines() if line.count("/") >= 6}
        return found - {".", ".."}


def tool(*words: str) -> str:
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=HUNG_S)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def small_package(folder: Path) -> Path:
    """The package with a program of a line."""
    program = folder / "dist/tigerchat/tigerchat"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\necho a small program\n")
    program.chmod(0o755)
    return make(folder / "packages", folder / "dist")["package"]


def more_of_a_base(folder: Path) -> Path:
    """A tar file with what the base for containers lacks."""
    tree = folder / "more"
    files: dict[str, str | bytes] = {
        f"usr/lib/systemd/system/{name}.service": UNIT for name in LACKING
    }
    files |= {"boot/vmlinuz-6.1": KERNEL, "usr/sbin/mkinitramfs": MKINITRAMFS}
    files |= {"etc/hostname": "who-built-it\n", "etc/machine-id": "of who built it\n"}
    for name, text in files.items():
        file = tree / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text.encode() if isinstance(text, str) else text)
        file.chmod(0o755)
    made = folder / "more.tar"
    tool("tar", "-cf", str(made), "-C", str(tree), ".")
    return made


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    folder = tmp_path_factory.mktemp("image")
    path = folder / "disk.img"
    bases = [TOP / ".base/booted.tar", more_of_a_base(folder)]
    words = [sys.executable, str(TOP / "packaging/image/build.py"), "--out", str(path)]
    words += ["--package", str(small_package(folder))]
    tool(*words, *(word for base in bases for word in ("--base", str(base))))
    table = json.loads(tool("sfdisk", "--json", str(path)))["partitiontable"]
    rows = {row["name"]: row for row in table["partitions"]}
    return Image(path, rows)


def fills(image: Image, name: str) -> bool:
    """Whether a file system ends where its partition does."""
    told = tool("dumpe2fs", "-h", image.part(name))
    count, size = (
        int(found) for found in re.findall(r"^Block (?:count|size):\s+(\d+)$", told, re.M)
    )
    return count * size == int(str(image.rows[name]["size"])) * SECTOR_SIZE


def test_both_tables_are_whole_and_name_three_partitions(image: Image) -> None:
    raw = image.path.open("rb")
    with raw:
        table = parse_partition_table(
            lambda at, size: os.pread(raw.fileno(), size, at), image.path.stat().st_size
        )
    assert table.size == image.path.stat().st_size
    assert list(image.rows) == ["esp", "root", "state"]
    assert all(row["start"] % 2048 == 0 for row in image.rows.values())
    assert len({row["uuid"] for row in image.rows.values()}) == 3
    assert image.rows["root"]["attrs"] == "GUID:60"
    assert image.path.stat().st_blocks * 512 < image.path.stat().st_size, "holes were written"
    assert not list(image.path.parent.glob(".image-*")), "something was left beside it"


def test_firmware_finds_one_file_with_kernel_initrd_and_command_line(image: Image) -> None:
    boot = image.path.with_name("boot.efi")
    esp = f"{image.path}@@{image.begin('esp')}"
    tool("mcopy", "-n", "-i", esp, "::/EFI/BOOT/BOOTX64.EFI", str(boot))
    parts = {}
    for section in ("osrel", "cmdline", "initrd", "linux"):
        file = boot.with_name(section)
        tool("objcopy", "-O", "binary", f"--only-section=.{section}", str(boot), str(file))
        parts[section] = file.read_bytes()
    assert boot.read_bytes()[:2] == b"MZ" and b"Debian" in parts["osrel"]
    assert parts["linux"].rstrip(b"\0") == KERNEL.rstrip(b"\0")
    words = parts["cmdline"].rstrip(b"\0").decode().split()
    assert f"root=PARTUUID={str(image.rows['root']['uuid']).lower()}" in words
    assert "ro" in words and "rw" not in words
    assert "systemd.gpt_auto=no" in words, "the ESP is mounted, for the next cut of power to hit"
    assert "console=ttyS0,115200" in words, "there is no serial line to log in on"
    initrd = parts["initrd"].decode()
    assert initrd.startswith("initrd of 6.1\n") and "manual_add_modules ext4 overlay" in initrd
    assert "upperdir=$kept/upper" in initrd


def test_the_root_is_whole_and_no_kernel_writes_to_it(image: Image, tmp_path: Path) -> None:
    tool("e2fsck", "-fn", image.part("root"))
    assert fills(image, "root")
    features = tool("dumpe2fs", "-h", image.part("root"))
    assert re.search(r"Filesystem features:.*\bread-only\b", features)
    (tmp_path / "at").mkdir()
    write = 'mount -o "loop,rw,offset=$2" "$0" "$1" && test -f "$1/etc/fstab" && touch "$1/written"'
    done = subprocess.run(
        ["unshare", "--mount", "--propagation", "private", "sh", "-c", write]
        + [str(image.path), str(tmp_path / "at"), str(image.begin("root"))],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1 and "Read-only file system" in done.stderr, done.stderr
    assert image.names("root", "/var") == set() and image.names("root", "/boot") == set()


def test_the_program_is_installed_and_its_units_start_with_the_machine(image: Image) -> None:
    assert image.mode("root", "/usr/bin/tigerchat") == "../lib/tigerchat/tigerchat"
    assert image.mode("root", "/usr/lib/tigerchat/tigerchat") == "regular 0755 0"
    assert "tigerchat:x:" in image.text("root", "/etc/passwd")
    wanted = image.names("root", "/etc/systemd/system/multi-user.target.wants")
    assert {
        *("tigerchat.service", "tigerchat-tty.service", "systemd-networkd.service"),
        "tigerchat-grow.service",
        *("tigerchat-setup@tty1.service", "tigerchat-setup@ttyS0.service"),
    } <= wanted
    assert image.names("root", "/etc/systemd/system/getty.target.wants") == {"getty@tty2.service"}
    drop_in = "/usr/lib/systemd/system/tigerchat.service.d/image.conf"
    assert "ConditionPathExists=/var/lib/tigerchat/set-up\n" in image.text("root", drop_in)
    assert image.text("root", "/etc/tigerchat-image") == f"{VERSION}\n"
    hook = "/usr/share/initramfs-tools/scripts/local-bottom/tigerchat"
    assert image.mode("root", hook) == "regular 0755 0"


def test_no_two_machines_are_the_same_and_nobody_can_log_in_before_a_secret(image: Image) -> None:
    assert image.text("root", "/etc/machine-id") == ""
    assert image.text("root", "/etc/hostname") == "tigerchat\n"
    assert image.names("root", "/etc/systemd/network") == set()
    root_line = image.text("root", "/etc/shadow").splitlines()[0]
    name, password, *_ = root_line.split(":")
    assert name == "root" and password.startswith(("!", "*")), root_line
    assert "No such file" not in image.mode("root", "/etc/resolv.conf")
    assert image.mode("root", "/etc/resolv.conf") == "../run/systemd/resolve/stub-resolv.conf"
    assert "apt" not in image.names("root", "/etc")


def test_a_node_does_not_wait_for_interfaces_without_a_cable(image: Image) -> None:
    name = "systemd-networkd-wait-online.service"
    units = "/usr/lib/systemd/system"
    (own,) = re.findall(r"^ExecStart=(.*)$", image.text("root", f"{units}/{name}"), re.MULTILINE)
    drop_in = image.text("root", f"{units}/{name}.d/image.conf").splitlines()
    assert drop_in[-2:] == ["ExecStart=", f"ExecStart={own} --any"]


def test_the_state_holds_what_the_machine_writes_and_grows(image: Image) -> None:
    tool("e2fsck", "-fn", image.part("state"))
    assert fills(image, "state")
    assert {"lib", "log", "cache"} <= image.names("state", "/")
    assert image.names("state", "/lib/etc") == {"upper", "work"}
    owner = image.mode("state", "/lib/tigerchat")
    user = re.search(r"tigerchat:x:(\d+):", image.text("root", "/etc/passwd"))
    assert user and owner == f"directory 0700 {user[1]}"
    last = max(image.rows.values(), key=lambda row: int(str(row["start"])))
    assert last is image.rows["state"], "only the last partition can grow"
    units = "/usr/lib/systemd/system"
    grow = image.text("root", f"{units}/tigerchat-grow.service")
    assert "\nAfter=systemd-repart.service\n" in grow  # which lets the partition grow
    (program, *words) = re.findall(r"^ExecStart=(.*)$", grow, re.MULTILINE)[0].split()
    assert image.mode("root", program) == "regular 0755 0" and words == ["/var"]


@pytest.mark.parametrize("file", ["hooks/tigerchat", "scripts/local-bottom/tigerchat"])
def test_what_the_initrd_runs_is_shell(file: str) -> None:
    path = TOP / "packaging/image/files/usr/share/initramfs-tools" / file
    tool("sh", "-n", str(path))
    assert tool("sh", str(path), "prereqs") == "" and os.access(path, os.X_OK)


@pytest.mark.parametrize(
    ("file", "name", "program"),
    [
        ("tigerchat-setup@.service", "tigerchat-setup@tty1.service", "/usr/bin/tigerchat"),
        ("tigerchat-grow.service", "tigerchat-grow.service", "/usr/lib/systemd/systemd-growfs"),
    ],
)
def test_units_of_the_image_are_understood(
    file: str, name: str, program: str, tmp_path: Path
) -> None:
    text = (TOP / "packaging/image/files/usr/lib/systemd/system" / file).read_text()
    assert f"\nExecStart={program} " in text
    unit = tmp_path / name
    unit.write_text(text.replace(program, shutil.which("true") or ""))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)],
        capture_output=True, text=True, check=False, timeout=HUNG_S,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
