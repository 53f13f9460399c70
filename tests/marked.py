"""What belongs to a run of tests: its folder by its name, its processes by their environment."""

import os
from pathlib import Path

import psutil

RUN_MARK = "TIGERCHAT_TEST_RUN"  # of a run inside another one it begins with that one's
RUN_OWNER = "TIGERCHAT_TEST_RUN_OWNER"  # pid of the process whose run it is
RUN_FOLDER = "tc-"  # how the name of its temporary folder begins


def processes_marked(mark: str) -> list[psutil.Process]:
    """Found by what they inherited, so that a process is seen whoever its parent is by now; those
    of runs inside this one too."""
    wanted = f"{RUN_MARK}={mark}".encode()
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "environ").read_bytes().split(b"\0")
            command = (folder / "cmdline").read_bytes()
        except OSError:
            continue  # of another user, or ended meanwhile
        own_tracker = b"multiprocessing.resource_tracker" in command  # lives as long as pytest
        of_run = any(word.startswith(wanted) for word in words)
        if of_run and int(folder.name) != os.getpid() and not own_tracker:
            found.append(psutil.Process(int(folder.name)))
    return found
