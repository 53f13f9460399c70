"""A disk image that a machine starts from: dist/tigerchat-VERSION-MACHINE.img

    tigerchat flash dist/tigerchat-0.1.0-x86_64.img /dev/sdX     write it to a disk
    python packaging/image/build.py --package FILE.deb           with another package

Needs root and the Debian packages that `make image` installs; what it takes from Debian is kept in
`.base/image.tar`. No device of this machine is touched.
"""

import argparse
import os
import platform
import sys
import tempfile
import time
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(TOP), str(Path(__file__).parent)]

import disk  # noqa: E402
import root  # noqa: E402

from appliance import VERSION  # noqa: E402
from tools import base_tree  # noqa: E402
from tools.fresh_chroot import Failure  # noqa: E402

MACHINE = "x86_64"


def build(out: Path, bases: list[Path], package: Path) -> None:
    """Make the image at `out`; what is needed meanwhile lies beside it."""
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=".image-") as folder:
        tree, state = Path(folder, "root"), Path(folder, "state")
        kernel, initrd = root.make_root(tree, bases, package, VERSION)
        root.take_state(tree, state)
        disk.make_disk(out, tree, state, kernel, initrd)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    dist = TOP / "dist"
    parser.add_argument("--package", type=Path, help="default: the one in dist/")
    parser.add_argument("--base", type=Path, action="append", help="default: .base/image.tar; "
                        "several are laid over each other")  # fmt: skip
    parser.add_argument("--out", type=Path, default=dist / f"tigerchat-{VERSION}-{MACHINE}.img")
    asked = parser.parse_args()
    started = time.monotonic()
    try:
        if os.geteuid() != 0 or platform.machine() != MACHINE:
            raise Failure(f"an image is made by root on a machine that is {MACHINE}")
        missing = disk.needed()
        if missing:
            raise Failure(f"missing here: {', '.join(missing)}; `make image` installs them")
        package = asked.package or dist / f"tigerchat_{VERSION}_amd64.deb"
        if not package.exists():
            raise Failure(f"{package} is missing: `make packages` makes it")
        if not asked.base:
            base_tree.fetch_image()
        asked.out.parent.mkdir(parents=True, exist_ok=True)
        build(asked.out.absolute(), asked.base or [base_tree.IMAGE], package)
    except Failure as failure:
        print(f"image: {failure}", file=sys.stderr)
        return 1
    size = asked.out.stat()
    whole, written = size.st_size / 1e6, size.st_blocks * 512 / 1e6
    after = f"after {time.monotonic() - started:.0f} s"
    print(f"image: {asked.out}, {whole:.0f} MB, {written:.0f} MB of them written, {after}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
