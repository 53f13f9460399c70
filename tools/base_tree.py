"""A bare Debian 12 in a tar file, for tests that need a machine without Python: fetched once.

python tools/base_tree.py fetch      make `.base/minbase.tar` if it is not there
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TOP))

from tools.fresh_chroot import SUITE, Failure, apt_sources, execute  # noqa: E402

BASE = TOP / ".base"
TREE = BASE / "minbase.tar"
FETCHED_WITHIN_S = 900


def fetch() -> None:
    """Make the tar file; Failure names what is missing."""
    if TREE.exists():
        return
    if os.geteuid() != 0 or shutil.which("debootstrap") is None:
        raise Failure("needs root and debootstrap: apt-get install --yes debootstrap")
    mirror = next((uri for uri, release, _ in apt_sources() if release == SUITE), None)
    if mirror is None:
        raise Failure(f"apt of this machine knows no source for {SUITE}")
    BASE.mkdir(exist_ok=True)
    started = time.monotonic()
    print("base_tree: fetching a bare Debian 12", flush=True)
    with tempfile.TemporaryDirectory(dir=BASE) as folder:
        root = Path(folder, "tree")
        command = ["debootstrap", "--variant=minbase", SUITE, str(root), mirror]
        execute(command, timeout_s=FETCHED_WITHIN_S)
        shutil.rmtree(root / "var/cache/apt/archives", ignore_errors=True)
        fresh = Path(folder, "minbase.tar")
        subprocess.run(["tar", "--create", "--file", fresh, "--directory", root, "."], check=True)
        fresh.replace(TREE)
    print(f"base_tree: {TREE} after {time.monotonic() - started:.0f} s", flush=True)


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
