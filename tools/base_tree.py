"""Debian 12 in tar files, for tests that need a machine of their own: fetched once.

python tools/base_tree.py fetch      make those of `.base` that are not there

minbase.tar   nothing but its base: no Python, no service manager
booted.tar    the same with systemd, to be booted as a container
peers.tar     the same with etcd, Redis and NATS, beside which we are measured
chats.tar     the same with WeeChat and irssi: made when a test of `make soak` first wants it
image.tar     the same with systemd and a kernel: made when `make image` first wants it

The first two lie beside their tar files unpacked, too, under layers that tests put over them.
"""

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TOP))

from tools.fresh_chroot import SUITE, Failure, apt_sources, execute  # noqa: E402

BASE = TOP / ".base"
TREE, BOOTED = BASE / "minbase.tar", BASE / "booted.tar"
BOOTED_PACKAGES = ("systemd", "systemd-sysv", "dbus", "iproute2")
PEERS = BASE / "peers.tar"
PEER_PACKAGES = ("etcd-server", "redis-server", "nats-server")
CHATS = BASE / "chats.tar"
CHAT_PACKAGES = ("weechat-headless", "weechat-plugins", "irssi")
IMAGE = BASE / "image.tar"
IMAGE_PACKAGES = (
    *BOOTED_PACKAGES,
    *("linux-image-amd64", "initramfs-tools", "zstd", "udev", "kmod", "e2fsprogs"),
    *("systemd-resolved", "systemd-timesyncd", "libpam-systemd", "iputils-ping", "nano"),
)
FETCHED_WITHIN_S = 900


def fetch() -> None:
    """Make the tar files that are missing, side by side: each waits for a mirror and for a disk.
    Failure names what is missing for the first that fails."""
    wanted = ((TREE, ()), (BOOTED, BOOTED_PACKAGES), (PEERS, PEER_PACKAGES))
    with ThreadPoolExecutor(len(wanted)) as pool:
        making = [pool.submit(make, *row) for row in wanted if not row[0].exists()]
    for made in making:
        made.result()
    for tree in (TREE, BOOTED):
        unpacked(tree)


def unpacked(tree: Path) -> Path:
    """The folder with what is in a tar file, made once. Nobody writes there: who wants to puts a
    layer over it."""
    folder = tree.with_suffix("")
    with (BASE / "unpacking").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            with tempfile.TemporaryDirectory(dir=BASE) as folder_name:
                fresh = Path(folder_name, folder.name)
                fresh.mkdir()
                subprocess.run(
                    ["tar", "--extract", "--file", tree, "--directory", fresh], check=True
                )
                fresh.rename(folder)
    return folder


def fetch_peers() -> None:
    """Make the tree with the products that a bench measures beside ours."""
    if not PEERS.exists():
        make(PEERS, PEER_PACKAGES)


def fetch_chats() -> None:
    """Make the tree with the chat programs whose logs are imported."""
    if not CHATS.exists():
        make(CHATS, CHAT_PACKAGES)


def fetch_image() -> None:
    """Make the tree of the disk image: what a machine needs to boot from its own disk."""
    if not IMAGE.exists():
        make(IMAGE, IMAGE_PACKAGES)


def make(tree: Path, packages: tuple[str, ...]) -> None:
    """A tar file with the base of Debian and what these packages bring."""
    if os.geteuid() != 0 or shutil.which("debootstrap") is None:
        raise Failure("needs root and debootstrap: apt-get install --yes debootstrap")
    mirror = next((uri for uri, release, _ in apt_sources() if release == SUITE), None)
    if mirror is None:
        raise Failure(f"apt of this machine knows no source for {SUITE}")
    BASE.mkdir(exist_ok=True)
    started = time.monotonic()
    print(f"base_tree: fetching {tree.name} of Debian 12", flush=True)
    with tempfile.TemporaryDirectory(dir=BASE) as folder:
        root = Path(folder, "tree")
        command = ["debootstrap", "--variant=minbase"]
        if packages:
            command.append(f"--include={','.join(packages)}")
        execute([*command, SUITE, str(root), mirror], timeout_s=FETCHED_WITHIN_S)
        shutil.rmtree(root / "var/cache/apt/archives", ignore_errors=True)
        fresh = Path(folder, tree.name)
        subprocess.run(["tar", "--create", "--file", fresh, "--directory", root, "."], check=True)
        fresh.replace(tree)
    print(f"base_tree: {tree} after {time.monotonic() - started:.0f} s", flush=True)


def main(arguments: list[str]) -> int:
    if arguments != ["fetch"]:
        print("usage: base_tree.py fetch", file=sys.stderr)
        return 2
    try:
        fetch()
    except Failure as failure:
        print(f"base_tree: {failure}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
