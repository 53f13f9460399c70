"""Three machines, each booted with a systemd of its own, run the frozen executable under its units:
two by the supervisor, one role by role."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from appliance.drivers.host.node_folder import SOCKETS_FOLDER
from appliance.drivers.network.ask import ask_status
from appliance.formats.site import SITE_FILE, load_site
from appliance.node.supervisor import STUCK_S_MAX
from tests.killed import kill_whole
from tests.packaging import frozen
from tests.packaging.container import Container, remove_groups
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
    ]
)
CREDENTIAL = "of the machine's store"  # as boot.sh puts it there
ENABLED = (SUPERVISED, SUPERVISED, BY_ROLE)


class Machines:
    """Three containers on this machine's network, a node in each."""

    def __init__(self, folder: Path, first_port: int) -> None:
        self.folder, self.site_folder = folder, folder / "s"
        folder.mkdir(parents=True)
        words = ["--nodes", "3", "--geometry", "small", "--brief", "--ports", str(first_port)]
        assert run("format", "--local", str(self.site_folder), *words).returncode == 0
        self.site = load_site(self.site_folder / SITE_FILE)
        self.containers: dict[int, Container] = {}

    def boot(self, node: int) -> None:
        words = [unpacked(BOOTED), self.folder / f"layer-{node}", frozen.dist() / "tigerchat"]
        words += [self.site_folder / f"node-{node}", TOP / "systemd"]
        console = self.folder / f"console-{node}"
        self.containers[node] = Container(str(node), BOOT, [*words, ENABLED[node]], console)

    def inside(self, node: int, *words: str) -> str:
        """What a command prints inside."""
        done = self.containers[node].inside(*words)
        return done.stdout + done.stderr

    def status(self, node: int, kind: str = "shard") -> dict[str, Any] | None:
        sockets = self.site_folder / f"node-{node}" / SOCKETS_FOLDER
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

    def replica(self, node: int) -> psutil.Process:
        """The process that runs the replica of a node."""
        (found,) = [
            process
            for process in self.containers[node].init().children(recursive=True)
            if words_of(process)[1:3] == ["start", "replica"]
        ]
        return found

    def close(self) -> None:
        for container in self.containers.values():
            container.lose()
        remove_groups()
        shutil.rmtree(self.folder)


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory, free_ports: FreePorts) -> Iterator[Machines]:
    made = Machines(tmp_path_factory.mktemp("booted") / "m", ports_in_a_row(free_ports))
    try:
        for node in range(3):
            made.boot(node)
        made.until_serving(0, 1, 2)
        done = run("room", "create", "general", "--local", str(made.site_folder))
        assert done.returncode == 0, done.stderr
        yield made
    finally:
        made.close()


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
    by_role = [line.split()[1] for line in BY_ROLE.splitlines()[1:]]
    active = machines.inside(2, "systemctl", "is-active", *by_role).split()
    assert dict(zip(by_role, active, strict=True)) == dict.fromkeys(by_role, "active")


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
    inside = machines.containers[node].init().children(recursive=True)
    titles = {one: " ".join(words_of(one)) for one in inside}
    return {title: one for one, title in titles.items() if "start" in title.split()}


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
