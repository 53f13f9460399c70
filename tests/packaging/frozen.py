"""The executable of this tree, frozen once for all tests of a run and for those that follow, until
the tree changes.

python -m tests.packaging.frozen     freeze it before they begin, as `make test` does
"""

import fcntl
import functools
import hashlib
import shutil
import subprocess
import sys
import time
from pathlib import Path

from tests.system.local_site import TOP

BUILD = TOP / "packaging" / "executable" / "build.py"
KEPT = TOP / "build" / "frozen"  # `make clean` removes it


def build(folder: Path, *words: str) -> Path:
    """What `make executable` leaves, in a folder of its own."""
    places = ["--dist", str(folder / "dist"), "--build", str(folder / "build")]
    done = subprocess.run(
        [sys.executable, str(BUILD), *places, *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "dist"


@functools.cache  # the tree of a run is one
def dist() -> Path:
    """Both forms; whoever comes second waits for the first."""
    KEPT.mkdir(parents=True, exist_ok=True)
    with (KEPT / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        made = KEPT / digest()
        if not made.exists():
            for old in KEPT.iterdir():
                if old.is_dir():
                    shutil.rmtree(old)
            build(KEPT / "fresh")
            shutil.rmtree(KEPT / "fresh" / "build")
            (KEPT / "fresh").rename(made)
    return made / "dist"


def digest() -> str:
    """Of everything that goes into it: the program, the recipe, the locks, the commit."""
    state = hashlib.sha256(
        subprocess.run(
            ["git", "-C", str(TOP), "describe", "--always", "--dirty"],
            capture_output=True,
            check=False,
        ).stdout
    )
    for folder in ("appliance", "firmware-config", "packaging/executable", "packaging/locks"):
        for path in sorted((TOP / folder).rglob("*")):
            if path.is_file() and path.suffix != ".pyc":
                state.update(f"{path.relative_to(TOP)}\0".encode())
                state.update(path.read_bytes())
    return state.hexdigest()[:16]


def main() -> int:
    begin = time.monotonic()
    dist()
    print(f"frozen: the executable of tests is there after {time.monotonic() - begin:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
