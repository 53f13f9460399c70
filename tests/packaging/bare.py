"""A bare Debian 12, in which a test runs something: a layer of its own over a tree that others
share, so that what it leaves lies apart.
"""

import os
import subprocess
from pathlib import Path

from tests.patience import HUNG_S
from tools.base_tree import TREE, unpacked

# Its own mounts and processes; all of them end with this one.
NAMESPACES = ("unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child")
# enter TREE LAYER N  N times: OUTSIDE INSIDE  COMMAND...
ENTER = """\
tree=$1 layer=$2 count=$3 root=$2/root
shift 3
mount -t overlay overlay -o "lowerdir=$tree,upperdir=$layer/upper,workdir=$layer/work" "$root"
mount -t proc proc "$root/proc"
while [ "$count" -gt 0 ]; do
    mkdir -p "$root$2"
    mount --rbind "$1" "$root$2"
    shift 2
    count=$((count - 1))
done
exec chroot "$root" "$@"
"""
PLAIN = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}
# Lists of accounts and packages, what is mounted, and what people wrote.
KEPT = ("proc/", "var/lib/dpkg/", "var/log/", "var/cache/", "etc/", "var/lib/tigerchat")


class Bare:
    """What lies at each key of `bound` is seen inside at its value."""

    def __init__(self, folder: Path, bound: dict[Path, str] | None = None) -> None:
        self.tree, self.folder, self._bound = unpacked(TREE), folder, bound or {}
        for name in ("upper", "work", "root"):
            (folder / name).mkdir(parents=True)

    def outside(self, name: str) -> Path:
        """Where one finds what was written at a path inside; and may put something."""
        return self.folder / "upper" / name.lstrip("/")

    def command(self, *words: str) -> list[str]:
        """The command that runs `words` inside."""
        bound = [str(place) for pair in self._bound.items() for place in pair]
        count = str(len(self._bound))
        enter = ["sh", "-euc", ENTER, "enter", str(self.tree), str(self.folder), count, *bound]
        return [*NAMESPACES, *enter, *words]

    def run(self, *words: str, code: int = 0) -> str:
        done = subprocess.run(
            self.command(*words), capture_output=True, text=True, check=False, timeout=HUNG_S,
            stdin=subprocess.DEVNULL, env=PLAIN,
        )  # fmt: skip
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    def traces(self) -> set[str]:
        """All that is there and was not, and all that is gone."""
        upper = self.folder / "upper"
        names = {path: str(path.relative_to(upper)) for path in upper.rglob("*")}
        return {
            name
            for path, name in names.items()
            if not name.startswith(KEPT)
            and (path.is_char_device() or not os.path.lexists(self.tree / name))
        }
