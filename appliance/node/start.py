"""The start of one node: a list of named phases, each of which says what it found or explains why
not; then its supervisor.
"""

import asyncio
import platform
import resource
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import click

from appliance.base.errors import ConfigurationError, StorageError
from appliance.base.limits import SUPERBLOCK_COPIES
from appliance.base.printable import counted
from appliance.cores.vsr import open as opening
from appliance.drivers.host import topology, tuning
from appliance.drivers.host.durable_file import lock_folder
from appliance.drivers.host.node_folder import (
    SOCKETS_FOLDER,
    NodeFolder,
    check_volume,
    open_node,
    read_node,
)
from appliance.drivers.host.process import cores
from appliance.drivers.nvme.reader import VolumeReader
from appliance.formats.configuration import mistake
from appliance.formats.geometry import PRODUCTION, SUPERBLOCK_COPY_SIZE, SUPERBLOCK_COPY_STRIDE
from appliance.formats.settings import SETTINGS_FILE
from appliance.formats.site import SITE_FILE
from appliance.formats.superblock import Superblock
from appliance.node import forked
from appliance.node.catalogue import COMMON, children
from appliance.node.child import Child
from appliance.node.one_process import run_in_one_process
from appliance.node.placement import placed
from appliance.node.ports import check_ports
from appliance.node.preflight import Examined, examine
from appliance.node.supervisor import Supervisor, supervise

OPERATOR_SESSIONS = 4  # of the log, for commands such as `recover` and `member`
FILES_MAX = 65_536  # descriptors a node asks for, if the system gives so many


@dataclass
class NodeStart:
    """Start-up of one node: its phases in order, and what they found."""

    folder: Path
    quiet: bool
    pinned: bool
    strict: bool = False
    profile: str | None = None  # of the machine; None: that of its model
    examined: Examined = field(init=False)
    node: NodeFolder = field(init=False)
    children: list[Child] = field(init=False, default_factory=list)

    def run(self, *, one_process: bool) -> int:
        """Go through the phases, then keep the roles alive; the exit code."""
        for name, phase in PHASES:
            self._say(f"{name}: {phase(self)}")
        if one_process:
            return run_in_one_process(self.node)
        forked.preload(COMMON)
        supervisor = Supervisor(
            self.children,
            report=self._warn,
            strict=self.strict,
            machine=self.examined.status() if self.pinned else None,  # else it is shared by many
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
        why = tuning.no_core_dumps()  # roles inherit it
        if why and self.strict:
            raise ConfigurationError(f"core dumps cannot be switched off: {why}; --strict wants it")
        self.examined = examine(self.profile)
        if self.strict and (self.examined.differences or self.examined.error):
            what = self.examined.error or (
                f"differs from its profile {self.examined.profile}: "
                f"{', '.join(self.examined.differences)}"
            )
            raise ConfigurationError(
                f"the machine {what}, and --strict wants no difference: `tigerchat preflight` says "
                "what each costs and how to mend it; or name a profile with --profile"
            )
        return (
            f"Linux {platform.release()}, {counted(len(cores()), 'core')}, {wanted} open files; "
            f"{self.examined.told()}"
        )

    def files(self) -> str:
        """The node's folder: for us alone, complete and consistent."""
        self.node = open_node(self.folder)
        site, settings = self.node.site, self.node.settings
        check_sessions(self.node.path, len(site.nodes), settings.edge_processes)
        lock_folder(self.folder)  # held until this process ends
        shards = ", ".join(str(shard.number) for shard in self.node.held)
        count = len(self.node.site.nodes)
        return f"{self.node.node.name} of {counted(count, 'node')}, shards {shards or 'none'}"

    def superblocks(self) -> str:
        """Volumes belong to this node and can be opened: one of them at least."""
        found, broken = _volumes(self.node)
        for trouble in broken:
            self._warn(f"superblock: {trouble}; the other shards of this node go on")
        return "; ".join(found) or "no volumes"

    def ports(self) -> str:
        """Nobody else listens where this node must."""
        return f"{', '.join(map(str, check_ports(self.node)))} are free"

    def roles(self) -> str:
        """What will run."""
        self.children = children(self.node)
        told = ", ".join(child.name for child in self.children)
        if not self.pinned or self.node.settings.pinning != "auto":
            return told
        self.children, how = placed(self.children, topology.read())
        if self.strict and all(child.cores is None for child in self.children):
            raise ConfigurationError(f"{how}, and --strict wants them pinned")
        return f"{told}; {how}"


def check_sessions(folder: Path, nodes: int, edge_processes: int) -> None:
    """ConfigurationError for more edges than sessions of the log: each needs one of its own, beside
    the shippers' and some for operators; else every request would evict another's session."""
    left = PRODUCTION.clients_max - OPERATOR_SESSIONS
    known = f"as a shard knows {PRODUCTION.clients_max} sessions"
    most = left // nodes - 1  # a shipper's
    if most < 1:
        allowed = f"at most {left // 2} tables, {known}"
        raise mistake(folder / SITE_FILE, "nodes", nodes, allowed)
    if edge_processes > most:
        allowed = f"at most {most} on each of {nodes} nodes, {known}"
        raise mistake(folder / SETTINGS_FILE, "edge_processes", edge_processes, allowed)


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


def check_takes(folder: Path) -> None:
    """ConfigurationError or StorageError unless a start of this program would take what a node's
    folder holds. Nothing is changed, and the node may run meanwhile, by another version."""
    node = read_node(folder)
    check_sessions(node.path, len(node.site.nodes), node.settings.edge_processes)
    for trouble in _volumes(node)[1]:
        halted = trouble.__cause__
        if isinstance(halted, opening.VolumeUnusable) and halted.halt == "VOLUME_NEWER":
            raise trouble  # for want of this volume alone a node goes on, and its replica never


def _volumes(node: NodeFolder) -> tuple[list[str], list[StorageError]]:
    """What is said of the volumes that can be opened, and why others cannot; StorageError where
    none can."""
    found: list[str] = []
    broken: list[StorageError] = []
    for shard in node.held:
        try:
            check_volume(node, shard.number)
            found.append(_superblock(node, shard.number))
        except StorageError as error:
            broken.append(error)
    if broken and not found:
        raise broken[0]
    return found, broken


def read_superblock(folder: Path) -> Superblock:
    """That of the volume in `folder`; StorageError when there is none that counts."""
    reader = VolumeReader(folder)
    try:
        copies = reader.read_many(
            [
                (copy * SUPERBLOCK_COPY_STRIDE, SUPERBLOCK_COPY_SIZE)
                for copy in range(SUPERBLOCK_COPIES)
            ]
        )
        return opening.choose(copies)[0]
    except opening.VolumeUnusable as error:
        raise StorageError(f"{folder}: {error}") from error
    finally:
        reader.close()


def _superblock(node: NodeFolder, shard: int) -> str:
    """Judge the superblock of a volume as the replica will, and whose it is."""
    folder = node.volume(shard)
    block = read_superblock(folder)
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
