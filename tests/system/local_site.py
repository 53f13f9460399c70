"""A whole site on this machine for tests: real processes, real disk, started, killed and read.

Nodes run as an operator runs them, a supervisor each with its role processes. The folder must lie
on a disk (volumes refuse memory); `LocalSite` is a context manager and leaves nothing running.
"""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from appliance.cores.console import alarms
from appliance.drivers.chat.access import Access, local_access
from appliance.drivers.host.node_folder import FEDERATION_FILE
from appliance.drivers.host.process import child_environment
from appliance.drivers.network.ask import ask_status
from appliance.formats.settings import SETTINGS_FILE, encode_settings
from appliance.formats.site import SITE_FILE, load_site
from tests import forked
from tests.patience import HUNG_S
from tests.ports import PORTS_AT_ONCE, FreePorts, close, port_is_free, ports_reserved
from tests.system import network

TOP = Path(__file__).resolve().parents[2]
# What sites are run by: the source tree, or an executable that a run of tests names.
COMMAND = [forked.EXECUTABLE] if forked.EXECUTABLE else [sys.executable, "-m", "appliance"]
NODES = 3
RATES = ("device_rate", "user_rate", "room_rate", "address_rate", "address_connect_rate")
UNLIMITED = dict.fromkeys(RATES, 10000000)
IN_FLIGHT_OPS = 16  # two pipelines
# Alarms of the machine, not of a site.
WEATHER = {"clock", "disk_health", "disk_slow", "log_ahead", "space"}
SLOWER_MAX = 8  # times slower than usual that a machine may be: nothing here is a claim on time
# Between two looks at a condition: long ones would take the time from what they look at.
PAUSE_S, PAUSES_PER_COST, PAUSE_MAX_S = 0.02, 3, 0.5
PORTS_NEEDED = 300  # from the first one: three nodes of a hundred
# Pauses that a test need not last through: of a supervisor, before it starts again what has halted;
# of `recover`, for a replica to let go of its identity, and of `format`, for other members to
# answer, where it is known that they do not.
AGAIN_SOON: Mapping[str, float] = {"appliance.node.supervisor.BACKOFF_S_MAX": 0.5}
WAITS_BRIEFLY: Mapping[str, float] = {"appliance.roles.operator.volumes.RELEASE_S": 0.5}
HEARS_NOBODY: Mapping[str, float] = {"appliance.node.format_node.PROBE_S": 0.2}


Process = subprocess.Popen[Any] | forked.Started


def words_of(process: psutil.Process) -> list[str]:
    """Its command line; one that a process wrote over its own is a single string."""
    return " ".join(process.cmdline()).split()


def environment() -> dict[str, str]:
    """For processes that are nobody's children: they find the code."""
    return {**os.environ, "PYTHONPATH": str(TOP)}


def ports_in_a_row(free_ports: FreePorts) -> int:
    """The first of as many ports as a site uses, of those a test run may use."""
    for _ in range(10):
        ports = free_ports(PORTS_NEEDED)
        if ports[-1] - ports[0] == PORTS_NEEDED - 1:
            return ports[0]
    raise AssertionError(f"no {PORTS_NEEDED} free ports in a row")


_reserved: list[socket.socket] = []  # of this process, by `first_free_port`


def first_free_port() -> int:
    """The first of as many ports as a site uses, none of them taken now, kept from other processes
    until this is asked again; below those that tests reserve, and below the range from which the
    kernel takes ports for clients.
    """
    close(_reserved)
    for first in range(12_000, 19_500, PORTS_NEEDED):
        blocks = [ports_reserved(first + at) for at in range(0, PORTS_NEEDED, PORTS_AT_ONCE)]
        ports = (first + 100 * node + part for node in range(NODES) for part in (0, 43, 80, 90, 91))
        if all(blocks) and all(map(port_is_free, ports)):
            _reserved[:] = [block for block in blocks if block is not None]
            return first
        close(blocks)
    raise AssertionError("no free ports")


def run(
    *words: str,
    timeout_s: float = HUNG_S,
    text: str | None = None,
    namespace: str = "",
    constants: Mapping[str, float] = forked.NO_CONSTANTS,
) -> subprocess.CompletedProcess[str]:
    """`tigerchat` with these words, to its end."""
    return forked.run(
        words,
        environment=child_environment(),
        text=text,
        timeout_s=timeout_s,
        namespace=namespace,
        constants=constants,
    )


def wait_until(
    condition: Callable[[], bool],
    timeout_s: float,
    what: str | Callable[[], str],
    progress: Callable[[], object] = lambda: None,
) -> None:
    """Poll `condition`; an assertion fails when it does not hold in time, and says `what`.

    `timeout_s` is for a machine at its usual speed: enough to call it hung, not a claim. It counts
    anew whenever `progress` gives something else: for work whose amount is not known.
    """
    begin, done = time.monotonic(), progress()
    while True:
        asked = time.monotonic()
        if condition():
            return
        cost_s = time.monotonic() - asked
        if done != (now_done := progress()):
            begin, done = time.monotonic(), now_done
        waited = time.monotonic() - begin
        if waited > min(SLOWER_MAX * timeout_s, HUNG_S):
            text = what if isinstance(what, str) else what()
            raise AssertionError(f"after {waited:.0f} s not yet: {text}")
        time.sleep(min(max(PAUSE_S, PAUSES_PER_COST * cost_s), PAUSE_MAX_S))


def alarms_of_the_site(said: str) -> list[str]:
    """Lines of `tigerchat status` with an alarm, but for those that the machine around a test may
    raise: its disk is full or slow, its clock was set."""
    named = re.findall(r"^([a-z_]+) +(?:bad|warn) ", alarms.__doc__ or "", re.MULTILINE)
    assert WEATHER < set(named)
    if not said.strip():
        return ["status said nothing"]
    return [line for line in said.splitlines() if line.split(" ")[0] in set(named) - WEATHER]


def shown(status: dict[str, Any] | None) -> str:
    """A replica's state in a few words."""
    if status is None:
        return "silent"
    names = ("status", "view", "log_view", "op", "commit_min", "commit_max", "checkpoint", "dirty")
    return " ".join(f"{name} {status[name]}" for name in names)


class LocalSite:
    """One shard on three nodes unless told otherwise. `settings` go into every node.toml.

    Not `supervised`: replicas, edges and objects run as children of this process, and nothing
    starts one again but `start_role`; for trials that kill more often than a supervisor would
    forgive. `objects` and `farm` are processes more on each node: for tests that are about them.
    One that is not `brief` has its volumes written whole at first, as an operator's: a gigabyte and
    more for each node, for what measures or is about the disk itself. `constants` are those of
    `forked.run`.
    """

    def __init__(
        self,
        folder: Path,
        first_port: int,
        *,
        nodes: int = NODES,
        supervised: bool = True,
        shards: int = 1,
        geometry: str = "production",
        segments_max: int | None = None,
        objects: bool = False,
        farm: bool = False,
        devices: Sequence[Path] = (),
        brief: bool = True,
        constants: Mapping[str, float] = forked.NO_CONSTANTS,
        **settings: int | bool | str,
    ) -> None:
        self.geometry, self.segments_max, self.constants = geometry, segments_max, constants
        self.objects, self.farm, self.devices = objects, farm, devices  # one for each node, or none
        self.brief = brief
        self.folder, self.first_port, self.nodes = folder, first_port, range(nodes)
        self.settings = {**UNLIMITED, "ship_target": "off", "snapshots_mib": 0, **settings}
        self.supervised, self.shards = supervised, shards
        assert supervised or shards == 1
        self.supervisors: dict[int, Process] = {}
        self.roles: dict[tuple[int, str], Process] = {}
        self.log = (folder.parent / f"{folder.name}.log").open("ab")

    def __enter__(self) -> "LocalSite":
        words = ["--ports", str(self.first_port), "--shards", str(self.shards)]
        words += ["--nodes", str(len(self.nodes)), "--geometry", self.geometry]
        if self.segments_max is not None:
            words += ["--segments-max", str(self.segments_max)]
        words += ["--objects" if self.objects else "--no-objects"]
        words += ["--brief"] if self.brief else []
        words += ["--accept-two-replicas"] if len(self.nodes) == 2 else []
        words += ["--farm" if self.farm else "--no-farm"]
        for node, device in enumerate(self.devices):
            words += ["--device", f"node-{node}/shard-0={device}"]
        done = self._format("format", "--local", str(self.folder), *words)
        assert done.returncode == 0, done.stderr
        self.configure(**self.settings)
        self._settle()
        self.site = load_site(self.folder / SITE_FILE)
        try:
            self.start()
            self.wait_serving()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Over at once. Whose disks are read next, record by record, is stopped before, so that
        nothing was in flight."""
        self.kill()
        self.log.close()

    # --- what a site with a network or a program of its own does otherwise

    def _format(self, *words: str) -> subprocess.CompletedProcess[str]:
        return run(*words)

    def _settle(self) -> None:
        """Change the files of the site before it is started for the first time."""

    def _wrapped(self, node: int, command: list[str]) -> list[str]:
        """The command that runs `command` on a node."""
        return command

    def _namespace(self, node: int) -> str:
        """The network namespace in which a node lives; none: this process' own."""
        return ""

    # --- processes

    def configure(self, **settings: int | bool | str) -> None:
        """Write node.toml of every node; read at the next start."""
        for node in self.nodes:
            path = self.place(node) / SETTINGS_FILE
            path.write_text(encode_settings(node, **settings))

    def start(self, *nodes: int) -> None:
        """Start these nodes, or all; does not wait."""
        for node in nodes or self.nodes:
            if self.supervised:
                assert node not in self.supervisors
                words = ["--node-folder", str(self.place(node)), "--quiet", "--unpinned"]
                self.supervisors[node] = self._spawn(node, words, {})
            else:
                self.start_role(node, "replica")
                self.start_role(node, "edge")
                if self.objects:
                    self.start_role(node, "metadata")
                if (self.place(node) / FEDERATION_FILE).exists():
                    self.start_role(node, "federation")

    def start_role(self, node: int, role: str, **variables: str) -> None:
        """Start one role process of a node as a child of ours, with more in its environment."""
        words = [role, "--node-folder", str(self.place(node))]
        if role == "replica":
            words += ["--shard", "0"]
        self.roles[node, role] = self._spawn(node, words, variables)

    def end_role(self, node: int, role: str) -> None:
        """SIGKILL to a role that is a child of ours."""
        process = self.roles.pop((node, role))
        process.kill()
        process.wait()

    def _spawn(self, node: int, words: list[str], variables: dict[str, str]) -> Process:
        """A node of its own, or a role that ends with this run. By exec where the process itself is
        another one than usual."""
        inherited = environment() if self.supervised else child_environment()
        usual = [*COMMAND, "start", *words]
        command, namespace = self._wrapped(node, usual), self._namespace(node)
        if command == usual and not forked.EXECUTABLE and not variables:
            log, own = self.log.fileno(), ["start", *words]
            return forked.start(
                own,
                environment=inherited,
                output=log,
                namespace=namespace,
                constants=self.constants,
            )
        return subprocess.Popen(
            network.within(namespace, command),
            env=inherited | variables,
            stdin=subprocess.DEVNULL,
            stdout=self.log,
            stderr=self.log,
            start_new_session=True,
        )

    def stop(self) -> None:
        """Stop all nodes in good order; kill what does not end."""
        children = [*self.supervisors.values(), *self.roles.values()]
        for child in children:
            child.send_signal(signal.SIGTERM)
        for child in children:
            try:
                child.wait(15 * SLOWER_MAX)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
        self.supervisors.clear()
        self.roles.clear()
        wait_until(lambda: not self.processes(), 60, "all processes of the site ended")

    def kill(self) -> None:
        """SIGKILL to all nodes, and to whatever a tracer of theirs would let go of; until nothing
        of them holds a file or a port."""
        running = self.processes()
        children = [*self.supervisors.values(), *self.roles.values()]
        for child in children:
            child.kill()
        for child in children:
            child.wait()
        self.supervisors.clear()
        self.roles.clear()
        running += self.processes()  # what was started meanwhile
        for process in running:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(running, timeout=HUNG_S)
        wait_until(lambda: not self.processes(), 60, "all processes of the site ended")

    def kill_node(self, node: int) -> None:
        """SIGKILL to the supervisor: the kernel does the same to each of its roles, in its own
        time. What `processes` finds has gone before the ports have; who starts a node waits."""
        roles = self.processes(node)
        if self.supervised:
            killed = [self.supervisors.pop(node)]
        else:
            killed = [self.roles.pop(key) for key in list(self.roles) if key[0] == node]
        for process in killed:
            process.kill()
        for process in killed:
            process.wait()
        _, left = psutil.wait_procs(roles, timeout=HUNG_S)
        assert not left, f"not ended: {left}"

    def kill_replica(self, node: int, shard: int = 0) -> int | None:
        """SIGKILL to the replica's process, if there is one; its supervisor starts it again."""
        for process in self.replicas(node, shard):
            process.kill()
            return process.pid
        return None

    def replicas(self, node: int, shard: int = 0) -> list[psutil.Process]:
        """The process of the node's replica of a shard, if there is one. One that is forked just
        now has not written all of its words yet."""
        found = []
        for process in self.processes(node, "replica"):
            try:
                words = words_of(process)
            except psutil.Error:
                continue
            if ("--shard", str(shard)) in zip(words, words[1:], strict=False):
                found.append(process)
        return found

    @contextmanager
    def standing_still(self, frozen: list[psutil.Process]) -> Iterator[None]:
        """SIGSTOP to these role processes, and before to who keeps them: a supervisor ends whoever
        is stuck. All go on in the end."""
        keepers = [process.parent() for process in frozen]
        own = {keeper.pid: keeper for keeper in keepers if keeper and "start" in words_of(keeper)}
        try:
            for process in (*own.values(), *frozen):
                process.suspend()
            yield
        finally:
            for process in (*frozen, *own.values()):
                if process.is_running():
                    process.resume()

    def processes(self, node: int | None = None, role: str = "") -> list[psutil.Process]:
        """Role processes of the site or of a node: they work in its folder."""
        places = [self.place(n) for n in (self.nodes if node is None else [node])]
        found = []
        for process in psutil.process_iter():
            try:
                words = words_of(process)
                mine = "start" in words and any(str(place) in words for place in places)
                if mine and (not role or role in words):
                    found.append(process)
            except psutil.Error:
                continue
        return found

    def ended(self) -> list[int]:
        """Nodes whose supervisor ended by itself."""
        return [
            node for node, supervisor in self.supervisors.items() if supervisor.poll() is not None
        ]

    # --- looking

    def place(self, node: int) -> Path:
        return self.folder / f"node-{node}"

    def access(self, user: str = "tester") -> Access:
        return local_access(self.folder, user)

    def status(self, node: int, shard: int = 0) -> dict[str, Any] | None:
        """What the node's replica of a shard says of itself; None: it does not answer."""
        return ask_status(
            self.place(node) / "sockets", cluster=self.site.cluster, shard=shard, timeout_s=2.0
        )

    def answer(self, node: int, shard: int = 0) -> dict[str, Any]:
        """As `status`, of a replica that is up, however busy the machine is."""
        found: list[dict[str, Any] | None] = []

        def answers() -> bool:
            found[:] = [self.status(node, shard)]
            return found[0] is not None

        wait_until(answers, HUNG_S / SLOWER_MAX, f"node {node} answers for shard {shard}")
        (status,) = found
        assert status is not None
        return status

    def statuses(self, shard: int = 0) -> list[dict[str, Any] | None]:
        return [self.status(node, shard) for node in self.nodes]

    def primary(self, shard: int = 0) -> int | None:
        """The node whose replica leads a shard, as far as can be seen."""
        found = [
            (s["view"], n)
            for n, s in enumerate(self.statuses(shard))
            if s and s["status"] == "normal" and s["role"] == "primary"
        ]
        return max(found)[1] if found else None

    def leader(self, shard: int = 0) -> int:
        """As `primary`, waited for while nobody leads: a busy machine may bring a view change at
        any time."""
        found: list[int | None] = []

        def leads() -> bool:
            found[:] = [self.primary(shard)]
            return found[0] is not None

        wait_until(leads, HUNG_S / SLOWER_MAX, lambda: f"somebody leads: {self.statuses(shard)}")
        (node,) = found
        assert node is not None
        return node

    def caught_up(self) -> bool:
        """Whether all replicas have executed the same ops and nothing is missing anywhere."""
        return all(map(self._shard_caught_up, range(self.shards)))

    def _shard_caught_up(self, shard: int) -> bool:
        found = self.statuses(shard)
        if any(s is None or s["status"] != "normal" or s["dirty"] or s["faulty"] for s in found):
            return False
        places = {(s["view"], s["op"], s["commit_min"], s["checkpoint"]) for s in found if s}
        return len(places) == 1 and all(s["op"] == s["commit_min"] for s in found if s)

    def settled(self) -> bool:
        """Whether all replicas are in normal operation and none is behind by more than what is in
        flight, so that any one of them may be lost."""
        return all(map(self._shard_settled, range(self.shards)))

    def _shard_settled(self, shard: int) -> bool:
        found = [status for status in self.statuses(shard) if status]
        if len(found) < len(self.nodes) or any(s["status"] != "normal" for s in found):
            return False
        newest = max(s["commit_max"] for s in found)
        behind = max(newest - s["commit_min"] for s in found)
        return len({s["view"] for s in found}) == 1 and behind <= IN_FLIGHT_OPS

    def wait_serving(self, timeout_s: float = 60.0) -> None:
        wait_until(
            lambda: self.caught_up() and all(map(self.edge_serves, self.nodes)),
            timeout_s,
            lambda: f"all replicas in normal operation: {self.statuses()}",
        )

    def wait_told(self, shard: int = 0) -> None:
        """Until each replica that answers has executed all that is committed by now: a backup hears
        of it with the next prepare or heartbeat, and until then its node shows less than somebody
        was told, whom another connection told it."""
        told = max((s["commit_max"] for s in self.statuses(shard) if s), default=0)
        wait_until(
            lambda: all(s["commit_min"] >= told for s in self.statuses(shard) if s),
            HUNG_S / SLOWER_MAX,
            lambda: f"op {told} is executed everywhere: {self.statuses(shard)}",
        )

    def edge_serves(self, node: int) -> bool:
        """Whether somebody listens at the node's client port."""
        port = self.site.nodes[node].client_port
        return any(
            connection.laddr.port == port
            for process in self._descendants(node)
            for connection in _listening(process, "edge")
        )

    def _descendants(self, node: int) -> Iterator[psutil.Process]:
        """What this process has started on a node, and what that has: found at once, unlike by
        `processes`, which looks at all of the machine."""
        started = [self.supervisors.get(node), self.roles.get((node, "edge"))]
        pids = [process.pid for process in started if process is not None]
        for pid in pids:
            with suppress(psutil.NoSuchProcess, OSError):
                yield psutil.Process(pid)
                tasks = Path("/proc", str(pid), "task").glob("*/children")
                pids += [int(child) for task in tasks for child in task.read_text().split()]

    # --- disks

    def inspect(self, node: int, *words: str, shard: int = 0) -> Iterator[dict[str, Any]]:
        """Rows of `tigerchat inspect` of the node's volume of a shard."""
        volume = self.place(node) / f"shard-{shard}"
        done = run("inspect", *words, "--json", "--volume", str(volume))
        assert done.returncode == 0, f"inspect {words} of node {node}: {done.stderr}"
        return map(json.loads, done.stdout.splitlines())


def _listening(process: psutil.Process, role: str) -> list[Any]:
    try:
        if role not in words_of(process):
            return []
        return [c for c in process.net_connections("tcp") if c.status == psutil.CONN_LISTEN]
    except psutil.Error:
        return []
