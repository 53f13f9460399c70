"""What a machine that was started from its image is asked about, and how the answers are carried
out: the world's side of `appliance/cores/setup`.
"""

import contextlib
import os
import pwd
import re
import secrets
import shutil
import stat
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from appliance.base.errors import ConfigurationError, StorageError
from appliance.cores.setup.machine import Begun, Disk, Machine, Part
from appliance.cores.setup.steps import (
    ADDRESS,
    DONE_FILE,
    NODE_FOLDER,
    PART_FILE,
    AwaitAddress,
    Bring,
    Run,
    ShowSecret,
    Step,
    Write,
)
from appliance.drivers.host.durable_file import write_durable
from appliance.drivers.host.node_folder import (
    FORMATTED_FILE,
    JWKS_FILE,
    KEYS_FOLDER,
)
from appliance.drivers.nvme.device import contents, probe
from appliance.drivers.nvme.volume import GEOMETRIES
from appliance.formats.settings import SETTINGS_FILE
from appliance.formats.site import SITE_FILE
from appliance.node.founding import is_joining

IMAGE_FILE = "/etc/tigerchat-image"  # the image's version: a machine without it is not ours to set
NODE_USER = "tigerchat"
LOGIN_USER = "root"
ADDRESS_S = 120.0  # for a cable, a switch and a server to give one
_POLL_S = 0.5
_SECRET_LETTERS = "abcdefghjkmnpqrstuvwxyz23456789"  # none that is read as another
_SECRET_SIZE, _SECRET_GROUP = 20, 5
_VIRTUAL_DISKS = re.compile(r"(loop|ram|zram|dm-|md|sr|fd|nbd)\d")
_PLAIN = re.compile(r"[\w.:+-]+", re.ASCII)  # stands in a rule or a unit as it is
_KNOWN_BY = (("by-id", "ID_SERIAL"), ("by-path", "ID_PATH"))  # links, what udev makes them of


@dataclass
class Hands:
    """By which the world is touched; tests have others. `root` is where paths begin."""

    tell: Callable[[str], None]
    pause: Callable[[], object]  # until somebody has read what was told
    root: Path = Path("/")
    run: Callable[[list[str], str], None] = field(default_factory=lambda: run)
    addresses: Callable[[], list[str]] = field(default_factory=lambda: own_addresses)

    def path(self, name: str) -> Path:
        return self.root / name.lstrip("/")


def run(words: list[str], typed: str = "") -> None:
    """StorageError when the command fails: it has said why."""
    try:
        done = subprocess.run(words, check=False, input=typed or None, text=True)
    except OSError as error:
        raise StorageError(f"{words[0]}: {error.strerror}") from error
    if done.returncode:
        raise StorageError(f"`{' '.join(words[:3])}` ended with code {done.returncode}; see above")


def refuse_other_machines(root: Path = Path("/")) -> None:
    """ConfigurationError for a machine whose settings are somebody else's, or that is set up."""
    if not (root / IMAGE_FILE.lstrip("/")).exists():
        raise ConfigurationError(
            "this machine was not started from an image of ours: its name and network are set "
            "elsewhere; make a site with `tigerchat found`, or join one with `tigerchat join`"
        )
    if (root / DONE_FILE.lstrip("/")).exists():
        raise ConfigurationError(
            f"this machine is set up: change what it has under /etc and in {NODE_FOLDER}, as "
            "docs/operations.md says"
        )


# --- facts ----------------------------------------------------------------------------------------


def find_machine(root: Path = Path("/")) -> Machine:
    """What there is to choose from."""
    return Machine(disks=tuple(_disks()), interfaces=tuple(_interfaces()), begun=how_far(root))


def how_far(root: Path) -> Begun:
    """What an earlier setup that was cut off has left."""
    folder = root / NODE_FOLDER.lstrip("/")
    is_formatted = (folder / FORMATTED_FILE).exists()
    if is_joining(folder):
        return Begun.CATCHING_UP if is_formatted else Begun.JOINING
    if is_formatted:
        return Begun.VOLUMES
    if not (folder / SITE_FILE).exists():
        return Begun.NOTHING
    try:
        part = (root / PART_FILE.lstrip("/")).read_text().strip()
    except OSError:
        part = ""
    return Begun.REPLACING if part == Part.REPLACE.value else Begun.SITE


def _interfaces() -> Iterator[str]:
    """Those with hardware, one with a cable first."""
    paths = [path for path in Path("/sys/class/net").glob("*") if (path / "device").exists()]
    yield from (path.name for path in sorted(paths, key=lambda path: (not _up(path), path.name)))


def _up(interface: Path) -> bool:
    try:
        return (interface / "carrier").read_text().strip() == "1"
    except OSError:  # it is down: it has none to tell of
        return False


def _disks() -> Iterator[Disk]:
    """Whole disks that nothing of this machine lies on, and that keep a name."""
    mounted = {line.split()[0] for line in Path("/proc/mounts").read_text().splitlines()}
    sizes = GEOMETRIES["production"]
    for block in sorted(Path("/sys/block").glob("*")):
        path = Path("/dev", block.name)
        parts = {f"/dev/{part.parent.name}" for part in block.glob("*/partition")}
        if _VIRTUAL_DISKS.match(block.name) or {str(path), *parts} & mounted:
            continue
        known = known_by(path)
        if known is None:
            continue
        try:
            size, carries = probe(path).size, contents(path)
        except StorageError:  # an empty drive, or one that fails
            continue
        segments = max(0, (size - sizes.data_size) // sizes.extent_size)
        yield Disk(str(path), *known, size, segments, carries)


def known_by(device: Path) -> tuple[str, str] | None:
    """(a link that always leads to this disk, how a rule of udev knows it)."""
    words = ["udevadm", "info", "--query=property", f"--name={device}"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    told = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
    links = told.get("DEVLINKS", "").split()
    for kind, key in _KNOWN_BY:
        fit = [link for link in links if link.startswith(f"/dev/disk/{kind}/")]
        fit = [link for link in fit if _PLAIN.fullmatch(link.rpartition("/")[2])]
        if fit and _PLAIN.fullmatch(told.get(key, "")):
            spoken = [link for link in fit if told[key] in link] or fit  # not a number of the maker
            return min(spoken, key=len), f'ENV{{{key}}}=="{told[key]}", ENV{{DEVTYPE}}=="disk"'
    return None


def own_addresses() -> list[str]:
    """Those that others reach this machine at; IPv4 first."""
    found = []
    for name, rows in psutil.net_if_addrs().items():
        found += [row for row in rows if row.family.name.startswith("AF_INET") and name != "lo"]
    found = [row for row in found if not row.address.startswith(("fe80", "169.254.", "127."))]
    return [row.address for row in sorted(found, key=lambda row: row.family.name != "AF_INET")]


# --- carrying out ---------------------------------------------------------------------------------


def carry_out(steps: Sequence[Step], hands: Hands) -> None:
    """All in order. The first that fails ends it, with its error; all may be carried out again."""
    address = ""
    for step in steps:
        if isinstance(step, Write):
            _write(hands.path(step.path), step.text)
        elif isinstance(step, AwaitAddress):
            address = _await_address(step.wanted, hands)
        elif isinstance(step, Bring):
            _bring(step.source, hands)
        elif isinstance(step, ShowSecret):
            _show_secret(hands)
        else:
            _run(step, address, hands)


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_durable(path, text)
    except OSError as error:
        raise StorageError(f"{path}: {error.strerror}") from error


def _run(step: Run, address: str, hands: Hands) -> None:
    words = [address if word == ADDRESS else word for word in step.words]
    hands.tell(f"setup: {Path(words[0]).name} {words[1]}")
    if step.as_node:
        user = ["setpriv", f"--reuid={NODE_USER}", f"--regid={NODE_USER}", "--init-groups"]
        words = [*user, *words]
    hands.run(words, "")


def _await_address(wanted: str, hands: Hands) -> str:
    hands.tell(f"setup: waits until this machine has {wanted or 'an address'}")
    deadline = time.monotonic() + ADDRESS_S
    while True:
        found = [address for address in hands.addresses() if wanted in ("", address)]
        if found:
            return found[0]
        if time.monotonic() > deadline:
            raise StorageError(
                f"no address came within {ADDRESS_S:.0f} s: is a cable plugged in, and does the "
                "network give addresses? Else say one yourself"
            )
        time.sleep(_POLL_S)


def _bring(source: str, hands: Hands) -> None:
    """The site file last: it says that all is there."""
    folder = hands.path(NODE_FOLDER)
    with _opened(Path(source), hands) as mounted:
        wanted = [mounted / name for name in (SETTINGS_FILE, JWKS_FILE, KEYS_FOLDER, SITE_FILE)]
        missing = [path.name for path in wanted if not path.exists()]
        if missing:
            raise ConfigurationError(f"{source} lacks {', '.join(missing)} of the lost machine")
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            for path in wanted[:-1]:
                _copy(path, folder / path.name)
            _own(folder)
            _write(folder / SITE_FILE, wanted[-1].read_text())
            _own(folder)
        except (OSError, UnicodeDecodeError) as error:
            raise StorageError(f"{source}: could not be copied: {error}") from error


@contextlib.contextmanager
def _opened(source: Path, hands: Hands) -> Iterator[Path]:
    """A folder, or what lies on a device while it is mounted."""
    if not source.exists():
        raise ConfigurationError(f"{source} is not there: plug it in, or name another one")
    if not stat.S_ISBLK(source.stat().st_mode):
        yield source
        return
    with tempfile.TemporaryDirectory(dir="/run", prefix="tigerchat-backup-") as mounted:
        hands.run(["mount", "-o", "ro,nosuid,nodev,noexec", str(source), mounted], "")
        try:
            yield Path(mounted)
        finally:
            hands.run(["umount", mounted], "")


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        target.mkdir(mode=0o700, exist_ok=True)
        for path in sorted(source.iterdir()):
            if path.is_file():
                _copy(path, target / path.name)
        return
    write_durable(target, source.read_bytes(), 0o600)


def _own(folder: Path) -> None:
    """Whoever runs the node owns its files."""
    if os.geteuid() != 0:
        return
    user = pwd.getpwnam(NODE_USER)
    for path in (folder, *folder.rglob("*")):
        shutil.chown(path, user.pw_uid, user.pw_gid)


def _show_secret(hands: Hands) -> None:
    letters = [secrets.choice(_SECRET_LETTERS) for _ in range(_SECRET_SIZE)]
    groups = range(0, _SECRET_SIZE, _SECRET_GROUP)
    secret = "-".join("".join(letters[at : at + _SECRET_GROUP]) for at in groups)
    hands.run(["chpasswd"], f"{LOGIN_USER}:{secret}\n")
    hands.run(["passwd", "--quiet", "--expire", LOGIN_USER], "")
    hands.tell(
        f"\nOne-time secret: {secret}\n\nLog in as {LOGIN_USER} with it, on tty2 or the serial "
        "line; it must be changed then.\nIt is kept nowhere and not shown again. Press Enter when "
        "you have it."
    )
    hands.pause()
