"""A machine with a systemd of its own, in a container: booted, entered, lost at once.

What it is booted by says what lies in it: `boot.sh` a node under its units, `machine.sh` a bare
Debian. Its name begins with the process that made it, so that runs beside each other do not meet.
"""

import contextlib
import os
import subprocess
from pathlib import Path

import psutil

from tests.patience import HUNG_S

PREFIX = f"tigerchat-{os.getpid()}-"
APART = ("unshare", "--mount", "--propagation", "private")
LINES_SHOWN = 60  # of its journal, when something is wrong


class Container:
    """`script` begins with its name and runs it to its end; what it prints goes to `console`."""

    def __init__(self, name: str, script: Path, words: list[str | Path], console: Path) -> None:
        self.name, self.console = f"{PREFIX}{name}", console
        with console.open("ab") as out:
            self.process = subprocess.Popen(
                [*APART, "sh", script, self.name, *words],
                stdout=out,
                stderr=out,
                stdin=subprocess.DEVNULL,
            )

    def init(self) -> psutil.Process:
        """The first process of it: what happens to that one happens to all."""
        (first,) = psutil.Process(self.process.pid).children()
        return first

    def enter(self, *words: str | Path) -> list[str | Path]:
        """The command that runs `words` inside."""
        return ["nsenter", "--target", str(self.init().pid), "--all", *words]

    def inside(self, *words: str | Path) -> subprocess.CompletedProcess[str]:
        """Run a command inside, to its end."""
        return subprocess.run(
            self.enter(*words),
            capture_output=True,
            text=True,
            check=False,
            timeout=HUNG_S,
            stdin=subprocess.DEVNULL,
        )

    def log(self) -> str:
        """What it printed, and what its journal ends with."""
        printed = self.console.read_text(errors="replace")[-3000:]
        with contextlib.suppress(ValueError, psutil.Error):
            words = ("journalctl", "--no-pager", "-n", str(LINES_SHOWN))
            printed += self.inside(*words).stdout
        return printed

    def lose(self) -> None:
        """As if its plug were pulled."""
        try:
            self.init().kill()
        except (ValueError, psutil.Error):  # it had not begun, or has ended
            self.process.kill()
        self.process.wait(HUNG_S)


def remove_groups() -> None:
    """The cgroups of all containers of this process, which have ended."""
    for group in Path("/sys/fs/cgroup").glob(f"**/{PREFIX}*"):
        for place in sorted(group.rglob("*/"), reverse=True):
            with contextlib.suppress(OSError):
                place.rmdir()
        with contextlib.suppress(OSError):
            group.rmdir()
