"""All nodes of a site on this machine: formatted at first, started, announced when they serve."""

import asyncio
import contextlib
import time
from dataclasses import dataclass, field
from pathlib import Path

import click

from appliance.base.errors import ConfigurationError, StorageError
from appliance.base.printable import counted
from appliance.drivers.chat.access import RIGHTS_USUAL, local_token
from appliance.drivers.host.durable_file import lock_folder
from appliance.drivers.host.node_folder import (
    FORMATTED_FILE,
    REMOVED_FILE,
    SOCKETS_FOLDER,
    NodeFolder,
    open_node,
    volume_name,
)
from appliance.drivers.host.process import child_environment, cores, own_command
from appliance.drivers.network.ask import status_of
from appliance.formats.group import Configuration
from appliance.formats.site import SITE_FILE, Site, load_site
from appliance.formats.site_view import Group, SiteView
from appliance.formats.status.edge import EdgeStatus
from appliance.formats.status.replica import NORMAL, REMOVED, STANDBY, ReplicaStatus
from appliance.node import forked
from appliance.node.child import Child
from appliance.node.local_ports import moved, told_of_objects, with_objects, write_site
from appliance.node.ports import check_ports
from appliance.node.start import read_superblock
from appliance.node.supervisor import Supervisor, supervise

POLL_S = 0.05  # between two looks whether a local site serves
PATIENCE_S = 30.0  # until it is said what a local site still waits for
TOKEN_USER, TOKEN_TTL_S = "alice", 24 * 3600
LOCAL_DEFAULT = "run"  # where `send`, `tail` and others look for a local site


def start_local(
    folder: Path,
    *,
    nodes: int | None,
    standbys: int | None,
    shards: int | None,
    ports: int | None,
    one_process: bool,
    brief: bool = False,
) -> int:
    """All nodes of the site in `folder`; the exit code. A new one's volumes are as `brief` says."""
    started = time.monotonic()
    if not _formatted(folder):
        code = _format(folder, nodes or 3, standbys or 0, shards or 1, ports, brief)
        if code != 0:
            return code
    site = load_site(folder / SITE_FILE)
    present = [node for node in site.nodes if not (folder / node.name / REMOVED_FILE).exists()]
    first = first_group(site, [folder / node.name for node in present])
    for name, wanted, there in (
        ("nodes", nodes, first.replica_count),
        ("standbys", standbys, first.standby_count),
        ("shards", shards, len(site.shards)),
    ):
        if wanted is not None and wanted != there:
            raise ConfigurationError(
                f"--{name} is {wanted}; allowed: {there}, as the site in {folder} has it now, or "
                "another folder"
            )
    lock_folder(folder)  # held until this process ends
    fresh = with_objects(site if ports is None else moved(site, ports))
    if fresh != site:
        write_site(folder, fresh)
    if told := told_of_objects(site, fresh):
        click.echo(f"start: {told}", err=True)
    opened = [open_node(folder / node.name) for node in present]
    for node in opened:
        check_ports(node)
    site_start = LocalStart(folder, opened, started)
    supervisor = Supervisor(
        _nodes(opened, one_process), report=site_start.warn, on_ready=site_start.on_ready
    )
    return asyncio.run(supervise(supervisor, folder, site.cluster))


def first_group(site: Site, folders: list[Path]) -> Group:
    """Who belongs to the first shard, as the volumes in these folders have it while none runs."""
    view = SiteView(site)
    for folder in folders:
        with contextlib.suppress(StorageError, ConfigurationError):  # whoever runs it says so
            block = read_superblock(folder / volume_name(0))
            of_group = block.epoch, block.members_op, block.replica_count, tuple(block.members)
            view = view.learned(0, Configuration(*of_group))
    return view.groups[0]


def _formatted(folder: Path) -> bool:
    path = folder / SITE_FILE
    if not path.exists():
        return False
    return all((folder / node.name / FORMATTED_FILE).exists() for node in load_site(path).nodes)


def _format(
    folder: Path, nodes: int, standbys: int, shards: int, ports: int | None, brief: bool
) -> int:
    words = [
        "format",
        "--local",
        str(folder),
        "--nodes",
        str(nodes),
        "--standbys",
        str(standbys),
        "--shards",
        str(shards),
    ]
    if ports is not None:
        words += ["--ports", str(ports)]
    words += ["--brief"] if brief else []
    return forked.run(words, child_environment())


def _nodes(opened: list[NodeFolder], one_process: bool) -> list[Child]:
    """A process for each node; cores of its own if there are enough for all."""
    available = cores()
    share = len(available) // len(opened)
    children = []
    for position, node in enumerate(opened):
        words = ["start", "--node-folder", str(node.path), "--quiet"]
        if one_process:
            words.append("--one-process")
        own = None
        if share > len(node.shards) + node.settings.edge_processes:
            own = frozenset(available[position * share : (position + 1) * share])
        else:
            words.append("--unpinned")
        command = [*own_command(), *words]
        children.append(
            Child(node.node.name, command, stop_group=0, cores=own, mends_itself=True, verb=words)
        )
    return children


@dataclass
class LocalStart:
    """Says when the site in `folder` serves, and what to do with it then."""

    folder: Path
    nodes: list[NodeFolder]
    started: float
    task: asyncio.Task[None] | None = None
    standbys: set[str] = field(default_factory=set)  # nodes of which a replica only follows

    def warn(self, line: str) -> None:
        click.echo(f"start: {line}", err=True)

    def on_ready(self) -> None:
        self.task = asyncio.get_running_loop().create_task(self._announce())

    async def _announce(self) -> None:
        patience = time.monotonic() + PATIENCE_S
        while (waits := await asyncio.to_thread(self.waits_for)) is not None:
            if time.monotonic() > patience:
                self.warn(f"still waiting: {waits}")
                patience = time.monotonic() + PATIENCE_S
            await asyncio.sleep(POLL_S)
        click.echo(self.description())

    def waits_for(self) -> str | None:
        """What does not serve yet, in words; None when all do."""
        self.standbys.clear()
        for node in self.nodes:
            for shard in node.held:
                status = status_of(
                    ReplicaStatus,
                    node.path / SOCKETS_FOLDER,
                    cluster=node.site.cluster,
                    number=shard.number,
                )
                state = "silent" if status is None else status.status
                if state != NORMAL and (status is None or status.role != REMOVED):
                    return f"replica of shard {shard.number} on {node.node.name} is {state}"
                if status is not None and status.role == STANDBY:
                    self.standbys.add(node.node.name)
            reason = _edge_waits_for(node)
            if reason and len(node.held) == len(node.shards):
                return f"edge of {node.node.name}: {reason}"
        return None

    def description(self) -> str:
        """URLs, secrets and lines to try."""
        took = time.monotonic() - self.started
        site = self.nodes[0].site
        beside = f" ({len(self.standbys)} of them standby)" if self.standbys else ""
        serving = (
            f"{counted(len(self.nodes), 'node')}{beside}, {counted(len(site.shards), 'shard')}"
        )
        lines = ["", f"serving: {serving}, after {took:.1f} s", ""]
        for node in self.nodes:
            lines.append(
                f"  {node.node.name}   chat {chat_url(node)}   console {console_url(node)}"
            )
        token = local_token(self.folder, TOKEN_USER, RIGHTS_USUAL, TOKEN_TTL_S)
        where = "" if self.folder == Path(LOCAL_DEFAULT).absolute() else f" --local {self.folder}"
        tigerchat = "tigerchat" if len(own_command()) == 1 else ".venv/bin/tigerchat"
        lines += [
            "  (each console has printed above the secret that opens it once)",
            "",
            f"  token of {TOKEN_USER}, for the chat page, valid for a day:",
            f"  {token}",
            "",
            "  try, in another terminal:",
            f"    {tigerchat} room create general{where}",
            f'    {tigerchat} send general "hello"{where}',
            f"    {tigerchat} tail general{where}",
            f"    {tigerchat} status{where}",
            "",
            "  Ctrl-C stops everything; the next start continues.",
            "",
        ]
        return "\n".join(lines)


def _edge_waits_for(node: NodeFolder) -> str:
    """Why the edge of a node does not serve; empty when it does."""
    status = status_of(
        EdgeStatus, node.path / SOCKETS_FOLDER, cluster=node.site.cluster, timeout_s=2.0
    )
    return "does not answer" if status is None else status.health


def chat_url(node: NodeFolder) -> str:
    """Where a browser finds the chat."""
    scheme = "https" if node.settings.client_tls else "http"
    return f"{scheme}://{node.node.host}:{node.node.client_port}/"


def console_url(node: NodeFolder) -> str:
    """Where a browser finds the console."""
    return f"https://{node.settings.console_host}:{node.node.console_port}/console"
