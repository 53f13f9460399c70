"""The real HDFS of a test run: one name node, one data node, started once, for whoever asks."""

import shutil
from collections.abc import Iterator
from pathlib import Path

from tests.ports import FreePorts
from tools import hdfs as tool
from tools.hdfs import PORTS_NEEDED, USER, Hdfs

__all__ = ["USER", "Hdfs", "fresh_folder", "running"]


def running(folder: Path, free_ports: FreePorts, tls: tool.Tls | None = None) -> Iterator[Hdfs]:
    """Format and start one in `folder`; gone and removed in the end."""
    tool.fetch()
    with Hdfs(folder, free_ports(PORTS_NEEDED), tls) as hdfs:
        yield hdfs
        for name in [*hdfs.processes]:
            hdfs.kill(name)  # with what it holds: there is nothing that it would end in order
    shutil.rmtree(folder)


_folders = iter(range(1, 1 << 30))


def fresh_folder() -> str:
    """A folder at the root of the HDFS that no other test of this run has."""
    return f"test-{next(_folders)}"
