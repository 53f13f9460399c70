"""The start of one node: a list of named phases, each of which says what it found or explains why
not; then its supervisor.
"""

import asyncio
import dataclasses
import platform
import resource
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import click

from appliance.base.errors import StorageError
from appliance.base.limits import SUPERBLOCK_COPIES
from appliance.base.printable import counted
from appliance.cores.vsr import open as opening
from appliance.drivers.host.durable_file import lock_folder
from appliance.drivers.host.node_folder import (
    SOCKETS_FOLDER,
    NodeFolder,
    check_volume,
    open_node,
)
from appliance.drivers.host.process import cores
from appliance.drivers.nvme.reader import VolumeReader
from appliance.formats.configuration import mistake
from appliance.formats.geometry import PRODUCTION, SUPERBLOCK_COPY_SIZE, SUPERBLOCK_COPY_STRIDE
from appliance.formats.settings import SETTINGS_FILE
from appliance.formats.site import SITE_FILE
from appliance.node.catalogue import children
from appliance.node.one_process import run_in_one_process
from appliance.node.ports import check_ports
from appliance.node.supervisor import Child, Supervisor, supervise

OPERATOR_SESSIONS = 4  # of the log, for commands such as `recover` and `member`
FILES_MAX = 65_536  # descriptors a node asks for, if the system gives so many


@dataclass
class NodeStart:
    """Start-up of one node: its phases in order, and what they found."""

    folder: Path
    quiet: bool
    pinned: bool
    node: NodeFolder = field(init=False)
    children: list[Child] = field(init=False, default_factory=list)

    def run(self, *, one_process: bool) -> int:
        """Go through the phases, then keep the roles alive; the exit code."""
        for name, phase in PHASES:
            self._say(f"{name}: {phase(self)}")
        if one_process:
            return run_in_one_process(self.node)
        supervisor = Supervisor(
            self.children,
            report=self._warn,
            progress=self._say,
            on_ready=lambda: self._say(_ready_line(supervisor)),
        )
        sockets = self.folder / SOCKETS_FOLDER
        return asyncio.run(supervise(supervisor, sockets, self.node.site.cluster))

    def _say(self, line: str) -> None:
        if not self.quiet:
            self._warn(line)

    def _warn(self, line: str) -> None:
        click.echo(f"start: {self.folder.name}: {line}", err=True)

    # --- phases

    def machine(self) -> str:
        """Cores, and as many open files as the system allows."""
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = FILES_MAX if hard == resource.RLIM_INFINITY else min(FILES_MAX, hard)
        if soft != resource.RLIM_INFINITY and soft < wanted:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        return f"Linux {platform.release()}, {counted(len(cores()), 'core')}, {wanted} open files"

    def files(self) -> str:
        """The node's folder: for us alone, complete and consistent."""
        self.node = open_node(self.folder)
        check_sessions(self.node)
        lock_folder(self.folder)  # held until this process ends
        shards = ", ".join(str(shard.number) for shard in self.node.shards)
        count = len(self.node.site.nodes)
        return f"{self.node.node.name} of {counted(count, 'node')}, shards {shards or 'none'}"

    def superblocks(self) -> str:
        """Volumes belong to this node and can be opened: one of them at least."""
        found: list[str] = []
        broken: list[StorageError] = []
        for shard in self.node.shards:
            try:
                check_volume(self.node, shard.number)
                found.append(_superblock(self.node, shard.number))
            except StorageError as error:
                broken.append(error)
        if broken and not found:
            raise broken[0]
        for trouble in broken:
            self._warn(f"superblock: {trouble}; the other shards of this node go on")
        return "; ".join(found) or "no volumes"

    def ports(self) -> str:
        """Nobody else listens where this node must."""
        return f"{', '.join(map(str, check_ports(self.node)))} are free"

    def roles(self) -> str:
        """What will run."""
        self.children = children(self.node)
        if self.pinned and self.node.settings.pinning == "auto":
            self.children = pinned(self.children, cores())
        return ", ".join(child.name for child in self.children)


def check_sessions(node: NodeFolder) -> None:
    """ConfigurationError for more edges than sessions of the log: each needs one of its own, beside
    the shippers' and some for operators; else every request would evict another's session."""
    count = len(node.site.nodes)
    most = (PRODUCTION.clients_max - count - OPERATOR_SESSIONS) // count
    if node.settings.edge_processes > max(1, most):
        raise mistake(
            node.path / SETTINGS_FILE,
            "edge_processes",
            node.settings.edge_processes,
            f"at most {max(1, most)} on each of {count} nodes, as a shard knows "
            f"{PRODUCTION.clients_max} sessions",
        )


def _ready_line(supervisor: Supervisor) -> str:
    halted = supervisor.halted
    if not halted:
        return "ready: all roles serve"
    return "ready: " + "; ".join(f"{name} halted: {why}" for name, why in halted.items())


PHASES: list[tuple[str, Callable[[NodeStart], str]]] = [
    ("machine", NodeStart.machine),
    ("files", NodeStart.files),
    ("superblock", NodeStart.superblocks),
    ("ports", NodeStart.ports),
    ("roles", NodeStart.roles),
]


def _superblock(node: NodeFolder, shard: int) -> str:
    """Judge the superblock of a volume as the replica will, and whose it is."""
    folder = node.volume(shard)
    reader = VolumeReader(folder)
    try:
        copies = reader.read_many(
            [
                (copy * SUPERBLOCK_COPY_STRIDE, SUPERBLOCK_COPY_SIZE)
                for copy in range(SUPERBLOCK_COPIES)
            ]
        )
        try:
            block, _ = opening.choose(copies)
        except opening.VolumeUnusable as error:
            raise StorageError(f"{folder}: {error}") from error
    finally:
        reader.close()
    described = node.site.shards[shard]
    index = described.replica_index(node.settings.index)
    assert index is not None
    if (block.cluster, block.shard) != (node.site.cluster, shard):
        raise StorageError(
            f"{folder} belongs to another site or shard: put back the folder that "
            f"was formatted with {node.path / SITE_FILE}"
        )
    if block.replica_id != described.replica_ids[index]:
        raise StorageError(
            f"{folder} belongs to another node of this site: put back the folder of "
            f"{node.node.name}"
        )
    return f"shard {shard} at view {block.view}, checkpoint {block.checkpoint.header.op}"


def pinned(children: list[Child], available: list[int]) -> list[Child]:
    """A core for each replica and edge, the rest for the others; all float if they do not do."""
    busy = [child for child in children if child.has_own_core]
    if len(available) <= len(busy):
        return children
    own = iter(available)
    placed = {child.name: frozenset((next(own),)) for child in busy}
    rest = frozenset(own)
    return [dataclasses.replace(child, cores=placed.get(child.name, rest)) for child in children]
