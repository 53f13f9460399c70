"""`tigerchat start`: a site on this machine, one node, or one role of a node.

    start --local DIR          formats DIR if it is not; a process `start --node-folder` a node
    start --node-folder F      the supervisor of a node; a process `start ROLE` a role
    start ROLE                 one role, in this process: replica, edge, shipper or console

A node's start is a list of named phases, each of which says what it found or explains why not.
Every process asks the kernel to end it with the one that started it, so nothing is left behind.
"""

import asyncio
import dataclasses
import os
import platform
import resource
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path

import click

from appliance.base.errors import ConfigurationError, StorageError
from appliance.base.limits import MEMBERS_MAX, REPLICAS_MAX, SUPERBLOCK_COPIES
from appliance.cores.vsr import open as opening
from appliance.drivers.chat.access import local_token
from appliance.drivers.chat.endpoint import endpoint_of_node
from appliance.drivers.host.durable_file import lock_folder, write_durable
from appliance.drivers.host.node_folder import (
    FORMATTED_FILE,
    SOCKETS_FOLDER,
    NodeFolder,
    open_node,
)
from appliance.drivers.host.process import child_environment, cores, die_with_parent, own_command
from appliance.drivers.host.role_process import Role
from appliance.drivers.network.ask import ask_status
from appliance.drivers.nvme.reader import VolumeReader
from appliance.formats.geometry import SUPERBLOCK_COPY_SIZE, SUPERBLOCK_COPY_STRIDE
from appliance.formats.settings import SHIP_OFF
from appliance.formats.site import SITE_FILE, Site, encode_site, load_site, ports_of
from appliance.roles.supervisor import Child, Supervisor

FILES_MAX = 65_536  # descriptors a node asks for, if the system gives so many
POLL_S = 0.05  # between two looks whether a local site serves
PATIENCE_S = 30.0  # until it is said what a local site still waits for
TOKEN_USER, TOKEN_TTL_S = "alice", 24 * 3600
TOKEN_RIGHTS = {"*": ["read", "send", "moderate"]}
LOCAL_DEFAULT = "run"  # where `send`, `tail` and others look for a local site
_FOLDER = click.Path(path_type=Path)


@click.group("start", invoke_without_command=True)
@click.option("--local", type=_FOLDER, metavar="DIR", help="All nodes of the local site in DIR.")
@click.option("--nodes", type=click.IntRange(1, REPLICAS_MAX), help="With --local; 3 if new.")
@click.option(
    "--standbys", type=click.IntRange(0, MEMBERS_MAX - 1), help="With --local; none if new."
)
@click.option("--shards", type=click.IntRange(1), help="With --local; 1 if new.")
@click.option("--ports", type=click.IntRange(1, 65535), help="First port of a local site; 7400.")
@click.option("--node-folder", type=_FOLDER, metavar="F", help="The node in F.")
@click.option("--one-process", is_flag=True, help="All roles of a node in one process.")
@click.option("--quiet", is_flag=True, help="Say only what goes wrong.")
@click.option("--unpinned", is_flag=True, hidden=True)
@click.pass_context
def command(
    ctx: click.Context,
    local: Path | None,
    nodes: int | None,
    standbys: int | None,
    shards: int | None,
    ports: int | None,
    node_folder: Path | None,
    one_process: bool,
    quiet: bool,
    unpinned: bool,
) -> None:
    """Run a site on this machine, a node, or one role of a node."""
    if ctx.invoked_subcommand is not None:
        return
    if (local is None) == (node_folder is None):
        raise click.UsageError("say --local DIR, --node-folder F, or a role")
    die_with_parent()
    if local is not None:
        ctx.exit(
            start_local(
                local.absolute(),
                nodes=nodes,
                standbys=standbys,
                shards=shards,
                ports=ports,
                one_process=one_process,
            )
        )
    assert node_folder is not None
    start = NodeStart(node_folder.absolute(), quiet=quiet, pinned=not unpinned)
    ctx.exit(start.run(one_process=one_process))


# --- one role -------------------------------------------------------------------------------------

_NODE_FOLDER = click.option("--node-folder", type=_FOLDER, required=True, metavar="F")


@command.command("replica")
@_NODE_FOLDER
@click.option("--shard", type=click.IntRange(0), required=True, metavar="S")
@click.pass_context
def start_replica(ctx: click.Context, node_folder: Path, shard: int) -> None:
    """The replica of a shard."""
    from appliance.roles import replica

    die_with_parent()
    _check_shard(open_node(node_folder), shard)
    ctx.exit(replica.run(node_folder, shard))


@command.command("edge")
@_NODE_FOLDER
@click.option("--number", type=click.IntRange(0), default=0, metavar="N")
@click.pass_context
def start_edge(ctx: click.Context, node_folder: Path, number: int) -> None:
    """An edge: listens for chat clients."""
    from appliance.roles.edge import role

    die_with_parent()
    ctx.exit(role.run(node_folder, number))


@command.command("console")
@_NODE_FOLDER
@click.pass_context
def start_console(ctx: click.Context, node_folder: Path) -> None:
    """The console: what the operator looks at."""
    from appliance.roles import console

    die_with_parent()
    ctx.exit(console.run(node_folder))


@command.command("shipper")
@_NODE_FOLDER
@click.pass_context
def start_shipper(ctx: click.Context, node_folder: Path) -> None:
    """The shipper: committed records to signed files at the target."""
    from appliance.roles import shipper

    die_with_parent()
    ctx.exit(shipper.run(node_folder))


def _check_shard(node: NodeFolder, shard: int) -> None:
    held = [held.number for held in node.shards]
    if shard not in held:
        raise ConfigurationError(
            f"--shard is {shard}; allowed: {', '.join(map(str, held))}, the shards of {node.path}"
        )


# --- one node -------------------------------------------------------------------------------------


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
            on_ready=lambda: self._say("ready: all roles serve"),
        )
        return asyncio.run(supervisor.run())

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
        return f"Linux {platform.release()}, {len(cores())} cores, {wanted} open files"

    def files(self) -> str:
        """The node's folder: for us alone, complete and consistent."""
        self.node = open_node(self.folder)
        lock_folder(self.folder)  # held until this process ends
        shards = ", ".join(str(shard.number) for shard in self.node.shards)
        count = len(self.node.site.nodes)
        return f"{self.node.node.name} of {count} nodes, shards {shards or 'none'}"

    def superblocks(self) -> str:
        """Each volume belongs to this node and can be opened."""
        found = [_look(self.node, shard.number) for shard in self.node.shards]
        return "; ".join(found) or "no volumes"

    def ports(self) -> str:
        """Nobody else listens where this node must."""
        return f"{', '.join(map(str, check_ports(self.node)))} are free"

    def roles(self) -> str:
        """What will run."""
        self.children = _children(self.node)
        if self.pinned and self.node.settings.pinning == "auto":
            self.children = pinned(self.children, cores())
        return ", ".join(child.name for child in self.children)


PHASES: list[tuple[str, Callable[[NodeStart], str]]] = [
    ("machine", NodeStart.machine),
    ("files", NodeStart.files),
    ("superblock", NodeStart.superblocks),
    ("ports", NodeStart.ports),
    ("roles", NodeStart.roles),
]


def _look(node: NodeFolder, shard: int) -> str:
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


def check_ports(node: NodeFolder) -> list[int]:
    """The node's ports; ConfigurationError for one that somebody else has."""
    found = []
    for port, key in ports_of(node.site, node.settings.index):
        host = node.settings.console_host if key == "console_port" else node.node.host
        where = f"{key} of {node.node.name} in {node.path / SITE_FILE}"
        try:
            family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            with socket.socket(family, kind) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(address)
        except PermissionError as error:
            raise ConfigurationError(f"port {port} is for root only: change {where}") from error
        except socket.gaierror as error:
            raise ConfigurationError(
                f"host {host} is unknown here: change the host beside {where}"
            ) from error
        except OSError as error:
            raise ConfigurationError(
                f"port {port} on {host} cannot be used ({error.strerror}): stop what uses it or "
                f"change {where}; `start --local DIR --ports BASE` moves all ports"
            ) from error
        found.append(port)
    return found


def _children(node: NodeFolder) -> list[Child]:
    """The role processes, edges to be stopped first, replicas last."""
    start = [*own_command(), "start"]
    place = ["--node-folder", str(node.path)]
    replicas = [
        Child(
            f"replica-{shard.number}",
            [*start, "replica", *place, "--shard", str(shard.number)],
            stop_group=2,
        )
        for shard in node.shards
    ]
    edges = [
        Child(f"edge-{number}", [*start, "edge", *place, "--number", str(number)], stop_group=0)
        for number in range(node.settings.edge_processes)
    ]
    others = [Child("console", [*start, "console", *place], stop_group=1)]
    if node.settings.ship_target != SHIP_OFF:
        others.append(Child("shipper", [*start, "shipper", *place], stop_group=1))
    return [*replicas, *edges, *others]


def pinned(children: list[Child], available: list[int]) -> list[Child]:
    """A core for each replica and edge, the rest for the others; all float if they do not do."""
    busy = [child for child in children if child.stop_group != 1]
    if len(available) <= len(busy):
        return children
    own = iter(available)
    placed = {child.name: frozenset((next(own),)) for child in busy}
    rest = frozenset(own)
    return [dataclasses.replace(child, cores=placed.get(child.name, rest)) for child in children]


# --- a site on this machine -----------------------------------------------------------------------


def start_local(
    folder: Path,
    *,
    nodes: int | None,
    standbys: int | None,
    shards: int | None,
    ports: int | None,
    one_process: bool,
) -> int:
    """All nodes of the site in `folder`; the exit code."""
    started = time.monotonic()
    if not _formatted(folder):
        code = _format(folder, nodes or 3, standbys or 0, shards or 1, ports)
        if code != 0:
            return code
    site = load_site(folder / SITE_FILE)
    first = site.shards[0]
    for name, wanted, there in (
        ("nodes", nodes, first.replica_count),
        ("standbys", standbys, first.standby_count),
        ("shards", shards, len(site.shards)),
    ):
        if wanted is not None and wanted != there:
            raise ConfigurationError(
                f"--{name} is {wanted}; allowed: {there}, as {folder} "
                "was formatted, or another folder"
            )
    lock_folder(folder)  # held until this process ends
    if ports is not None:
        _move_ports(folder, site, ports)
    opened = [open_node(folder / node.name) for node in site.nodes]
    for node in opened:
        check_ports(node)
    site_start = LocalStart(folder, opened, started)
    supervisor = Supervisor(
        _nodes(opened, one_process), report=site_start.warn, on_ready=site_start.on_ready
    )
    return asyncio.run(supervisor.run())


def _formatted(folder: Path) -> bool:
    path = folder / SITE_FILE
    if not path.exists():
        return False
    return all((folder / node.name / FORMATTED_FILE).exists() for node in load_site(path).nodes)


def _format(folder: Path, nodes: int, standbys: int, shards: int, ports: int | None) -> int:
    words = [
        *own_command(),
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
    return subprocess.run(words, env=child_environment(), check=False).returncode


def _move_ports(folder: Path, site: Site, first: int) -> None:
    """Give every node the same ports relative to `first` as it had to node 0's peer port."""
    step = first - site.nodes[0].peer_port
    if step == 0:
        return
    names = ("peer_port", "client_port", "console_port")
    nodes = [
        dataclasses.replace(node, **{name: getattr(node, name) + step for name in names})
        for node in site.nodes
    ]
    if any(not 0 < getattr(node, name) < 65536 for node in nodes for name in names):
        raise ConfigurationError(f"--ports is {first}; allowed: such that all lie in 1 to 65535")
    text = encode_site(dataclasses.replace(site, nodes=nodes))
    for place in (*(folder / node.name for node in nodes), folder):
        write_durable(place / SITE_FILE, text)


def _nodes(opened: list[NodeFolder], one_process: bool) -> list[Child]:
    """A process for each node; cores of its own if there are enough for all."""
    available = cores()
    share = len(available) // len(opened)
    children = []
    for position, node in enumerate(opened):
        words = [*own_command(), "start", "--node-folder", str(node.path), "--quiet"]
        if one_process:
            words.append("--one-process")
        own = None
        if share > len(node.shards) + node.settings.edge_processes:
            own = frozenset(available[position * share : (position + 1) * share])
        else:
            words.append("--unpinned")
        children.append(Child(node.node.name, words, stop_group=0, cores=own))
    return children


@dataclass
class LocalStart:
    """Says when the site in `folder` serves, and what to do with it then."""

    folder: Path
    nodes: list[NodeFolder]
    started: float
    task: asyncio.Task[None] | None = None

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
        for node in self.nodes:
            for shard in node.shards:
                status = ask_status(
                    node.path / SOCKETS_FOLDER, cluster=node.site.cluster, shard=shard.number
                )
                state = status.get("status") if status else "silent"
                if state != "normal":
                    return f"replica of shard {shard.number} on {node.node.name} is {state}"
            reason = _edge_waits_for(node)
            if reason:
                return f"edge of {node.node.name}: {reason}"
        return None

    def description(self) -> str:
        """URLs, secrets and lines to try."""
        took = time.monotonic() - self.started
        site = self.nodes[0].site
        standbys = site.shards[0].standby_count
        beside = f" ({standbys} of them standby)" if standbys else ""
        serving = f"{len(self.nodes)} nodes{beside}, {len(site.shards)} shards"
        lines = ["", f"serving: {serving}, after {took:.1f} s", ""]
        for node in self.nodes:
            lines.append(
                f"  {node.node.name}   chat {chat_url(node)}   console {console_url(node)}"
            )
        token = local_token(self.folder, TOKEN_USER, TOKEN_RIGHTS, TOKEN_TTL_S)
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
    endpoint = endpoint_of_node(node.node, client_tls=node.settings.client_tls)
    if endpoint.tls is None:
        link = HTTPConnection(endpoint.host, endpoint.port, timeout=2.0)
    else:
        link = HTTPSConnection(endpoint.host, endpoint.port, timeout=2.0, context=endpoint.tls)
    try:
        link.request("GET", "/healthz")
        answer = link.getresponse()
        text = answer.read(200).decode(errors="replace").strip()
        return "" if answer.status == 200 else text
    except (OSError, HTTPException) as error:
        return f"does not answer ({error})"
    finally:
        link.close()


def chat_url(node: NodeFolder) -> str:
    """Where a browser finds the chat."""
    scheme = "https" if node.settings.client_tls else "http"
    return f"{scheme}://{node.node.host}:{node.node.client_port}/"


def console_url(node: NodeFolder) -> str:
    """Where a browser finds the console."""
    return f"https://{node.settings.console_host}:{node.node.console_port}/console"


# --- all roles in one process ---------------------------------------------------------------------


def run_in_one_process(node: NodeFolder) -> int:
    """The roles of a node as services of one loop, for laptops and tests; the exit code."""
    import uvloop

    from appliance.drivers.host.log import start_log
    from appliance.roles import console, replica, shipper
    from appliance.roles.edge.role import EdgeRole

    log = start_log(node.node.name, node.settings.log_level)
    os.chdir(node.path)
    roles: list[Role] = [replica.ReplicaRole(node, shard.number, log) for shard in node.shards]
    roles += [EdgeRole(node, 0, log), console.ConsoleRole(node, log)]
    if node.settings.ship_target != SHIP_OFF:
        roles.append(shipper.ShipperRole(node, log))
    return uvloop.run(_serve_together(roles))


async def _serve_together(roles: list[Role]) -> int:
    """Until one of them ends, then the others; the first exit code that is not 0."""
    tasks = [asyncio.create_task(role.serve()) for role in roles]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    os.kill(os.getpid(), signal.SIGTERM)
    return next((code for code in await asyncio.gather(*tasks) if code), 0)
