"""Where the frozen program begins."""

import contextlib
import ctypes
import fcntl
import os
import shutil
import signal
import sys
from pathlib import Path

PR_SET_PDEATHSIG = 1
IN_USE = "in_use"  # a file in the folder of an unpacked program; who runs from there has it locked

HERE = Path(sys._MEIPASS)  # type: ignore[attr-defined]


def hold(folder: Path) -> None:
    """Lock the folder that this process runs from, until the process ends."""
    mark = folder / IN_USE
    with contextlib.suppress(FileNotFoundError):
        fcntl.flock(os.open(mark, os.O_RDONLY), fcntl.LOCK_SH)
        return
    fresh = folder / f"{IN_USE}.{os.getpid()}"
    fcntl.flock(os.open(fresh, os.O_CREAT | os.O_RDONLY, 0o600), fcntl.LOCK_SH)
    fresh.rename(mark)  # nobody sees it before it is locked


def remove_left_behind(beside: Path) -> None:
    """What loaders that were killed unpacked: our own folders which nobody runs from any more."""
    for folder in beside.parent.glob("_MEI*"):
        with contextlib.suppress(OSError):
            if folder == beside or folder.lstat().st_uid != os.geteuid():
                continue
            mark = os.open(folder / IN_USE, os.O_RDONLY | os.O_NOFOLLOW)
            try:
                fcntl.flock(mark, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder)  # which refuses a link
            finally:
                os.close(mark)


# The one-file form is two processes: a loader, which is what people see and kill, and this one.
# Killed with -9, the loader would leave it behind, and with it everything that it started. What it
# unpacked stays then; the next start removes it.
if not HERE.is_relative_to(Path(sys.executable).parent):
    loader = os.getppid()
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if Path(f"/proc/{loader}/exe").resolve() != Path(sys.executable).resolve():
        os._exit(1)  # it has died already
    hold(HERE)
    remove_left_behind(HERE)

from appliance.__main__ import main  # noqa: E402

sys.exit(main())
