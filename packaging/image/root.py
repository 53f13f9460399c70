"""The root file system of the image: a Debian, our package, and what makes it an appliance.

Nothing of the machine that builds stays in it: neither its names, nor where packages came from.
"""

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tools.fresh_chroot import Failure, execute

FILES = Path(__file__).with_name("files")
IMAGE_FILE = "etc/tigerchat-image"
HOST_NAME = "tigerchat"
STATE = "var/lib/etc"  # of the state partition: what was changed in /etc
# A unit that the base lacks is a mistake of the base: `systemctl` says so.
ENABLED = (
    *("tigerchat.service", "tigerchat-tty.service", "tigerchat-grow.service"),
    *("tigerchat-setup@tty1.service", "tigerchat-setup@ttyS0.service"),
    *("getty@tty2.service", "systemd-networkd.service", "systemd-resolved.service"),
    "systemd-timesyncd.service",
)
# The status page has the first screen. What updates packages cannot, on a root that is read-only.
DISABLED = (
    *("getty@tty1.service", "apt-daily.timer", "apt-daily-upgrade.timer", "dpkg-db-backup.timer"),
    "e2scrub_all.timer",
)
REMOVED = (
    *("boot", "etc/apt", "etc/hostname", "etc/machine-id", "etc/resolv.conf", "etc/mtab"),
    *("usr/share/info", "usr/share/locale", "usr/share/man", "var/cache", "var/lib/apt", "var/log"),
    *("initrd.img", "initrd.img.old", "vmlinuz", "vmlinuz.old"),
)
DOCS, OWN_DOCS, LICENCE = "usr/share/doc", "tigerchat", "copyright"
# Its own mounts and processes; all of them end with this one.
APART = ("unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child")
ENTER = 'mount -t proc proc "$0/proc" && exec chroot "$0" /usr/bin/env -i "$@"'
PLAIN = ("PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8", "DEBIAN_FRONTEND=noninteractive")
WITHIN_S = 1800


def make_root(root: Path, bases: Sequence[Path], package: Path, version: str) -> tuple[Path, Path]:
    """Lay out the tree in `root`; (kernel, initrd), which lie beside it."""
    root.mkdir(mode=0o755)
    for base in bases:
        execute(["tar", "-xf", str(base), "-C", str(root)], timeout_s=WITHIN_S)
    shutil.copy(package, root / "tmp/package.deb")
    inside(root, "dpkg", "--install", "/tmp/package.deb")
    (root / "tmp/package.deb").unlink()
    shutil.copytree(FILES, root, dirs_exist_ok=True)
    (root / IMAGE_FILE).write_text(f"{version}\n")
    inside(root, "systemctl", "--quiet", "disable", *DISABLED)
    inside(root, "systemctl", "--quiet", "enable", *ENABLED)
    inside(root, "passwd", "--quiet", "--lock", "root")
    boot = boot_files(root)
    clean(root)
    return boot


def boot_files(root: Path) -> tuple[Path, Path]:
    """The kernel, and an initrd of it that mounts what the machine keeps."""
    kernels = sorted((root / "boot").glob("vmlinuz-*"))
    if len(kernels) != 1:
        raise Failure(f"the base has {len(kernels)} kernels; one is needed")
    name = kernels[0].name.removeprefix("vmlinuz-")
    inside(root, "mkinitramfs", "-o", "/boot/initrd", name)
    kernel, initrd = root.with_name("vmlinuz"), root.with_name("initrd")
    shutil.copy(kernels[0], kernel)
    shutil.copy(root / "boot/initrd", initrd)
    return kernel, initrd


def clean(root: Path) -> None:
    """Take away what no machine needs, or what would make all of them the same one."""
    for name in REMOVED:
        path = root / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    for path in (root / DOCS).rglob("*"):
        if path.is_file() and path.name != LICENCE and OWN_DOCS not in path.parts:
            path.unlink()
    for path in root.glob("etc/ssh/ssh_host_*"):
        path.unlink()
    for name in ("run", "tmp", "root"):
        for path in (root / name).iterdir():
            remove(path)
    (root / "etc/hostname").write_text(f"{HOST_NAME}\n")
    (root / "etc/machine-id").write_text("")  # the first start makes one
    (root / "etc/resolv.conf").symlink_to("../run/systemd/resolve/stub-resolv.conf")
    (root / "etc/mtab").symlink_to("../proc/self/mounts")
    for name in ("boot", "var/cache", "var/log"):
        (root / name).mkdir()


def remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def take_state(root: Path, state: Path) -> None:
    """Move what the machine will write out of the root; the places to mount it on stay."""
    shutil.move(root / "var", state)
    (root / "var").mkdir()
    for name in ("upper", "work"):
        (state / STATE.removeprefix("var/") / name).mkdir(parents=True)


def inside(root: Path, *words: str) -> None:
    """Run a command of the tree in it."""
    enter = [*APART, "sh", "-c", ENTER, str(root), *PLAIN, *words]
    done = subprocess.run(
        enter, check=False, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=WITHIN_S,
    )  # fmt: skip
    if done.returncode:
        last = "\n".join((done.stdout + done.stderr).splitlines()[-20:])
        raise Failure(f"{' '.join(words[:3])}: exit code {done.returncode}\n{last}")
