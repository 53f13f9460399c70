"""Three machines, each booted with a systemd of its own, run the frozen executable under its units:
two by the supervisor, one role by role."""

import asyncio
import contextlib
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from appliance.drivers.chat.access import local_access
from appliance.drivers.chat.client import Client
from appliance.drivers.host.node_folder import SOCKETS_FOLDER, read_node
from appliance.drivers.network.ask import ask_status
from appliance.formats.federation_site import encode_code
from appliance.formats.settings import SETTINGS_FILE, encode_settings
from appliance.formats.site import SITE_FILE, load_site
from appliance.node.supervisor import STUCK_S_MAX
from appliance.roles.operator.federation import ask
from appliance.roles.operator.leading import step_down
from tests import removal
from tests.formats.test_nvme_health import page
from tests.killed import below, kill_whole
from tests.packaging import frozen
from tests.packaging.container import Container, remove_groups
from tests.packaging.emulated_disk import EmulatedDisk, emulated_disk
from tests.packaging.neighbour import neighbour
from tests.packaging.screen import Screen
from tests.patience import HUNG_S
from tests.ports import FreePorts
from tests.system.local_site import TOP, ports_in_a_row, run, wait_until, words_of
from tools.base_tree import BOOTED, unpacked

pytestmark = pytest.mark.root
BOOT = Path(__file__).with_name("boot.sh")
SUPERVISED = "multi-user.target tigerchat.service"
BY_ROLE = "\n".join(
    [
        "multi-user.target tigerchat.target",
        "tigerchat.target tigerchat-replica@0.service",
        "tigerchat.target tigerchat-edge@0.service",
        "tigerchat.target tigerchat-console.service",
        "tigerchat.target tigerchat-farm.service",
        "tigerchat.target tigerchat-metadata.service",
        "tigerchat.target tigerchat-shipper.service",
        "tigerchat.target tigerchat-keeper.service",
        "tigerchat.target tigerchat-federation.service",
        "multi-user.target tigerchat-tty.service",
    ]
)
TIMERS = ("tigerchat-disks.timer",)  # that the target brings
CREDENTIAL = "of the machine's store"  # as boot.sh puts it there
ENABLED = (SUPERVISED, SUPERVISED, BY_ROLE)
BY_ROLE_NODE = 2
KEPT_S = 1.0
SEGMENT_RECORDS = 100  # of the small geometry
PORT_OF_PARIS = 250  # behind the first one of the nodes


class Machines:
    """Three containers on this machine's network, a node in each. That with a unit a role has a
    first screen and a disk, is among other sites, and keeps what is said for `KEPT_S`.
    """

    def __init__(self, folder: Path, first_port: int, screen: Screen, disk: EmulatedDisk) -> None:
        self.folder, self.site_folder = folder, folder / "s"
        self.screen, self.disk = screen, disk
        words = ["--nodes", "3", "--geometry", "small", "--brief", "--ports", str(first_port)]
        local = "--local", str(self.site_folder)
        own = "--node-folder", str(self.node_folder(BY_ROLE_NODE))
        for made in (
            ("format", *local, *words),
            ("retention", "set", repr(KEPT_S / 86_400), *own),
            ("federation", "init", "paris", "--port", str(first_port + PORT_OF_PARIS), *own),
        ):
            done = run(*made)
            assert done.returncode == 0, done.stderr
        settings = encode_settings(BY_ROLE_NODE, ship_target="off")  # what is old may go at once
        (self.node_folder(BY_ROLE_NODE) / SETTINGS_FILE).write_text(settings)
        self.site = load_site(self.site_folder / SITE_FILE)
        self.containers: dict[int, Container] = {}

    def node_folder(self, node: int) -> Path:
        return self.site_folder / f"node-{node}"

    def boot(self, node: int) -> None:
        words = [unpacked(BOOTED), self.folder / f"layer-{node}", frozen.dist() / "tigerchat"]
        words += [self.node_folder(node), TOP / "systemd", ENABLED[node]]
        if node == BY_ROLE_NODE:
            words += [f"--bind={self.screen.device}:/dev/tty1"]
            words += [f"--bind={self.disk.path}:/dev/nvme0"]
            words += [f"--bind-ro={self.disk.path.with_name('class')}:/sys/class"]
        console = self.folder / f"console-{node}"
        self.containers[node] = Container(str(node), BOOT, words, console)

    def inside(self, node: int, *words: str) -> str:
        """What a command prints inside."""
        done = self.containers[node].inside(*words)
        return done.stdout + done.stderr

    def status(self, node: int, kind: str = "shard") -> dict[str, Any] | None:
        sockets = self.node_folder(node) / SOCKETS_FOLDER
        return ask_status(sockets, cluster=self.site.cluster, shard=0, kind=kind)

    def serves(self, node: int) -> bool:
        replica, edge = self.status(node), self.status(node, "edge")
        return (
            replica is not None
            and replica["status"] == "normal"
            and edge is not None
            and edge["health"] == ""
        )

    def until_serving(self, *nodes: int) -> None:
        for node in nodes:
            wait_until(
                lambda node=node: self.serves(node), HUNG_S, lambda node=node: self.log(node)
            )

    def log(self, node: int) -> str:
        return self.containers[node].log()

    def lose(self, node: int) -> None:
        """As if its plug were pulled."""
        self.containers.pop(node).lose()

    def until_leads(self, node: int) -> None:
        """Whoever leads lets another one, until it is this node's turn."""
        self.until_serving(*self.containers)
        while (leads := self.status(node)["view"] % 3) != node:
            sockets = self.node_folder(leads) / SOCKETS_FOLDER
            step_down(sockets, cluster=self.site.cluster, shard=0)
            wait_until(
                lambda leads=leads: self.status(node)["view"] % 3 != leads,
                HUNG_S,
                lambda: self.log(node),
            )
            self.until_serving(*self.containers)

    def replica(self, node: int) -> psutil.Process:
        """The process that runs the replica of a node."""
        (found,) = [
            process
            for words, process in below(self.containers[node].init()).items()
            if words.split()[1:3] == ["start", "replica"]
        ]
        return found

    def close(self) -> None:
        for container in self.containers.values():
            container.lose()
        remove_groups()


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory, free_ports: FreePorts) -> Iterator[Machines]:
    folder = tmp_path_factory.mktemp("booted") / "m"
    (folder / "disk").mkdir(parents=True)
    with contextlib.ExitStack() as closed:
        closed.callback(removal.remove, folder)
        screen = closed.enter_context(Screen())
        disk = closed.enter_context(emulated_disk(folder / "disk", page()))
        made = Machines(folder, ports_in_a_row(free_ports), screen, disk)
        closed.callback(made.close)
        for node in range(3):
            made.boot(node)
        made.until_serving(0, 1, 2)
        done = run("room", "create", "general", "--local", str(made.site_folder))
        assert done.returncode == 0, done.stderr
        yield made


def say(machines: Machines, text: str) -> None:
    done = run("send", "general", text, "--local", str(machines.site_folder))
    assert done.returncode == 0, done.stderr


def said(machines: Machines) -> str:
    words = ["--no-follow", "--last", "50", "--local", str(machines.site_folder)]
    return run("tail", "general", *words).stdout


def test_three_machines_acknowledge_lose_one_and_go_on(machines: Machines) -> None:
    say(machines, "all three are up")
    view = machines.status(0)["view"]
    lost = view % 3
    machines.lose(lost)
    for number in range(3):
        say(machines, f"one is lost, message {number}")
    machines.boot(lost)
    machines.until_serving(lost)
    say(machines, "and it is back")
    texts = "all three are up", *(f"lost, message {n}" for n in range(3)), "and it is back"
    wait_until(  # a node hears of what another one acknowledged with its next heartbeat
        lambda: all(text in said(machines) for text in texts), 60, lambda: said(machines)
    )
    told = said(machines)
    assert all(told.count(text) == 1 for text in texts), told


def test_systemd_sees_them_as_they_are(machines: Machines) -> None:
    machines.until_serving(0, 1, 2)
    shown = machines.inside(0, "systemctl", "show", "tigerchat", "-p", "ActiveState,StatusText")
    assert "ActiveState=active" in shown and "processes serve" in shown
    failed = [machines.inside(n, "systemctl", "--failed", "--no-legend") for n in range(3)]
    assert failed == ["", "", ""], [machines.log(n) for n in range(3) if failed[n]]
    assert machines.inside(2, "systemctl", "is-active", "tigerchat.service").strip() == "inactive"
    by_role = [line.split()[1] for line in BY_ROLE.splitlines()[1:]] + [*TIMERS]
    active = machines.inside(2, "systemctl", "is-active", *by_role).split()
    assert dict(zip(by_role, active, strict=True)) == dict.fromkeys(by_role, "active")


def test_the_screen_of_a_machine_shows_how_its_node_is(machines: Machines) -> None:
    """On a terminal that the unit takes, hangs up and resets as it does the first screen."""
    name = machines.site.nodes[BY_ROLE_NODE].name
    told = re.compile(rf"{name} +(primary|backup) +normal")  # by its replica, which it has asked
    wait_until(lambda: bool(told.search(machines.screen.read())), HUNG_S, machines.screen.read)


def test_a_disk_s_health_is_left_where_the_node_reads_it(machines: Machines) -> None:
    """By the unit's own rights; what answers stands in for the kernel's driver."""
    inside = machines.containers[BY_ROLE_NODE].inside
    done = inside("systemctl", "start", "tigerchat-disks.service")
    assert done.returncode == 0, machines.log(BY_ROLE_NODE)
    words = ("setpriv", "--reuid", "tigerchat", "--regid", "tigerchat", "--clear-groups")
    record = inside(*words, "od", "-An", "-v", "-tx1", "/run/tigerchat-disks/nvme0")
    assert record.returncode == 0, record.stderr + machines.log(BY_ROLE_NODE)
    assert bytes.fromhex(record.stdout) == page()
    words = ("setpriv", "--reuid", "nobody", "--clear-groups")
    assert inside(*words, "ls", "/run/tigerchat-disks").returncode != 0


def test_what_is_old_is_dropped_by_the_keeper_of_the_node_that_leads(machines: Machines) -> None:
    machines.until_leads(BY_ROLE_NODE)
    asyncio.run(fill(machines, SEGMENT_RECORDS))
    wait_until(
        lambda: machines.status(BY_ROLE_NODE)["oldest_segment"] > 0,
        HUNG_S,
        lambda: machines.log(BY_ROLE_NODE),
    )
    words = ("--no-pager", "--output=cat", "TIGERCHAT_UNIT=tigerchat-keeper.service")
    told = machines.inside(BY_ROLE_NODE, "journalctl", *words)
    assert "shard 0 keeps segments from" in told, told


async def fill(machines: Machines, count: int) -> None:
    """So many messages in a room of their own."""
    access = local_access(machines.site_folder, "tester")
    async with Client(access.endpoints, access.token, patience_s=HUNG_S) as client:
        room = (await client.create_room("old")).room_id
        await asyncio.gather(*[await client.post(room, f"{at}") for at in range(count)])


def test_another_site_links_to_the_federation_by_stream_and_by_datagrams(
    machines: Machines, tmp_path: Path, free_ports: FreePorts
) -> None:
    asyncio.run(link(machines, tmp_path, free_ports(1)[0]))


async def link(machines: Machines, folder: Path, port: int) -> None:
    node = read_node(machines.node_folder(BY_ROLE_NODE))

    def links() -> int:
        told = ask(node)
        return 0 if told is None else told.links.get("oslo", 0)

    async with neighbour("oslo", folder, port, node) as oslo:
        words = ("federation", "add-site", encode_code(oslo), "--carrier", "datagram")
        done = await asyncio.to_thread(tigerchat, machines, *words)
        assert done.returncode == 0, done.stderr
        await asyncio.to_thread(wait_until, lambda: links() == 2, HUNG_S, lambda: str(ask(node)))


def tigerchat(machines: Machines, *words: str) -> subprocess.CompletedProcess[str]:
    """What its operator does on the machine with a unit a role."""
    command = ("/usr/lib/tigerchat/tigerchat", *words, "--node-folder", "/var/lib/tigerchat/node")
    return machines.containers[BY_ROLE_NODE].inside(*command)


def test_the_journal_says_in_fields_whose_line_it_is(machines: Machines) -> None:
    for node, unit in ((0, "tigerchat.service"), (2, "tigerchat-replica@0.service")):
        fields = ["TIGERCHAT_ROLE=replica-0", f"TIGERCHAT_UNIT={unit}"]
        shown = machines.inside(node, "journalctl", "--no-pager", "--output=json", *fields)
        lines = [json.loads(line) for line in shown.splitlines() if line.startswith("{")]
        assert any(line["MESSAGE"].endswith(" begins") for line in lines), shown
        assert {line["_SYSTEMD_UNIT"] for line in lines} == {unit}


def test_a_credential_of_the_machine_reaches_the_node_and_nobody_else(machines: Machines) -> None:
    (supervisor,) = [
        process
        for process in machines.containers[0].init().children()
        if words_of(process)[1:3] == ["start", "--node-folder"]
    ]
    place = Path(supervisor.environ()["CREDENTIALS_DIRECTORY"]) / "ship.token"
    enter = ["nsenter", "--target", str(supervisor.pid), "--mount", "--pid"]
    for user, code in (("tigerchat", 0), ("nobody", 1)):
        words = ["setpriv", "--reuid", user, "--clear-groups", "cat", place]
        done = subprocess.run([*enter, *words], capture_output=True, text=True, check=False)
        assert done.returncode == code, done.stderr
        assert (done.stdout == CREDENTIAL) == (code == 0)


@pytest.mark.parametrize(
    ("node", "bound_s"), [(2, 3.0), pytest.param(0, STUCK_S_MAX, marks=pytest.mark.soak)]
)
def test_a_stuck_loop_is_killed_within_its_bound_and_loses_nothing(
    machines: Machines, node: int, bound_s: float
) -> None:
    """By systemd, which was told to wait 3 s, or by the supervisor."""
    machines.until_serving(0, 1, 2)
    say(machines, f"before {node} is stuck")
    stuck = machines.replica(node)
    stuck.suspend()
    say(machines, f"while {node} is stuck")
    wait_until(lambda: not stuck.is_running(), 2 * bound_s, lambda: machines.log(node))
    machines.until_serving(node)
    say(machines, f"after {node} was stuck")
    told = said(machines)
    for text in ("before {} is stuck", "while {} is stuck", "after {} was stuck"):
        assert told.count(text.format(node)) == 1, told
    killed = f"replica-0 was silent for {STUCK_S_MAX:.0f} s: killed"
    by_the_supervisor = killed in machines.log(node)
    assert by_the_supervisor == (bound_s == STUCK_S_MAX)


def all_of(machines: Machines, node: int) -> dict[str, psutil.Process]:
    """The program's processes on a machine, by their words."""
    inside = below(machines.containers[node].init())
    return {title: one for title, one in inside.items() if "start" in title.split()}


def kill_and_serve_on(machines: Machines, node: int, title: str) -> None:
    """kill -9 of a process; nothing of it is left soon, and systemd has the node serve again."""
    before = all_of(machines, node)
    took_s = kill_whole(before[title])
    print(f"nothing is left {took_s:.3f} s after kill -9 of {title}")
    wait_until(
        lambda: (
            (now := all_of(machines, node)).keys() == before.keys()
            and now[title].pid != before[title].pid
        ),
        HUNG_S,
        lambda: machines.log(node),
    )
    machines.until_serving(node)


def test_kill_9_of_a_unit_leaves_none_of_its_processes(machines: Machines) -> None:
    machines.until_serving(0, 1, 2)
    (supervisor,) = [title for title in all_of(machines, 0) if "start --node-folder" in title]
    kill_and_serve_on(machines, 0, supervisor)
    say(machines, "after a unit was killed")
    assert said(machines).count("after a unit was killed") == 1


@pytest.mark.soak
@pytest.mark.parametrize("node", [0, 2])
def test_kill_9_of_each_process_of_the_units_leaves_nothing_that_it_started(
    machines: Machines, node: int
) -> None:
    """Of the one unit of a node, and of a unit for each role."""
    machines.until_serving(0, 1, 2)
    titles = sorted(all_of(machines, node))
    assert len(titles) >= 6
    for title in titles:
        kill_and_serve_on(machines, node, title)
