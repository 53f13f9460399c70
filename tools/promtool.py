"""promtool of Debian 12, which tests rules for alerts: fetched once, unpacked and not installed.

python tools/promtool.py fetch      have it in `.base`, from the very package that is named here

Standard library only. A package whose bytes are not the known ones is refused.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
BASE = TOP / ".base"
PROMTOOL = BASE / "promtool"
VERSION = "2.42.0+ds-5+deb12u1"
DIGESTS = {  # of the package, by Debian's name of the architecture
    "amd64": "81d59a24fce84f7fbe97a45a4f2914b6a5881b5cd1db2a6a0e129e515e1a5f55",
    "arm64": "ca131aa102390083398afbc80be9c8dd1dda78f9f92154fc00df8f7f1f4556e9",
}
FETCHED_WITHIN_S = 600


class PromtoolError(Exception):
    """What went wrong and what to do, in one line."""


def fetch() -> None:
    """Have `PROMTOOL`; nothing is done when it is there."""
    if PROMTOOL.exists():
        return
    if shutil.which("apt-get") is None:
        raise PromtoolError("needs apt-get, to fetch the package prometheus of Debian 12")
    BASE.mkdir(exist_ok=True)
    print(f"promtool: fetching it from the package prometheus {VERSION}", flush=True)
    with tempfile.TemporaryDirectory(dir=BASE) as name:
        folder = Path(name)
        package = download(folder)
        check(package.read_bytes(), architecture())
        run(["dpkg-deb", "--extract", str(package), str(folder / "tree")], folder)
        (folder / "tree/usr/bin/promtool").replace(PROMTOOL)


def download(folder: Path) -> Path:
    """The package, by apt; its lists may be missing, or older than the package."""
    command = ["apt-get", "-q", "-o", "Acquire::Retries=3", "download", f"prometheus={VERSION}"]
    try:
        run(command, folder)
    except PromtoolError:
        if os.geteuid() != 0:
            raise
        subprocess.run(["apt-get", "-q", "update"], check=False, capture_output=True)
        run(command, folder)
    return next(folder.glob("prometheus_*.deb"))


def check(package: bytes, machine: str) -> None:
    """PromtoolError unless these are the bytes of the package that is named above."""
    wanted = DIGESTS.get(machine)
    if wanted is None:
        raise PromtoolError(f"no package is known here for {machine}; known: {', '.join(DIGESTS)}")
    if hashlib.sha256(package).hexdigest() != wanted:
        raise PromtoolError(
            f"the package prometheus {VERSION} of {machine} has other bytes than are known in "
            "tools/promtool.py: it is not used"
        )


def architecture() -> str:
    """As Debian calls this machine's."""
    command = ["dpkg", "--print-architecture"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def run(command: list[str], folder: Path) -> None:
    done = subprocess.run(
        command,
        cwd=folder,
        check=False,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=FETCHED_WITHIN_S,
    )
    if done.returncode != 0:
        last = (done.stdout + done.stderr).strip().splitlines()[-5:]
        raise PromtoolError("\n".join([*last, f"{' '.join(command[:2])} failed; see above"]))


def main(arguments: list[str]) -> int:
    if arguments != ["fetch"]:
        print("usage: promtool.py fetch", file=sys.stderr)
        return 2
    try:
        fetch()
    except PromtoolError as error:
        print(f"promtool: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
