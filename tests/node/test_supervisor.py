"""The supervisor, with small real processes: what dies comes back, and nothing stays behind."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from signal import Signals
from typing import Any, TypeVar

import psutil
import pytest

from appliance.drivers.host import service
from appliance.drivers.host.service import Listener
from appliance.formats.status.supervisor import ChildStatus
from appliance.node import supervisor as supervisor_module
from appliance.node.child import Child
from appliance.node.supervisor import REFUSALS_MIN, ROUND_S_MAX, Supervisor
from tests.patience import HUNG_S, within

TOP = Path(__file__).resolve().parents[2]

# A child: notes that it started, does as told, says READY, ends on SIGTERM, with "late=S" so many
# seconds after it. "deaf" does not end,
# "mute" never says READY, "once" says it in its first life only, "refuse=N" exits with 1 N times.
# Stopped by SIGSTOP it is a loop that is stuck.
CHILD = """
import os, signal, sys, time
from pathlib import Path
from appliance.drivers.host.process import die_with_parent
from appliance.drivers.host.service import notify
die_with_parent()
folder, name, *orders = sys.argv[1:]
with open(f"{folder}/{name}", "a") as file:
    file.write(f"{os.getpid()}\\n")
if "deaf" in orders:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
else:
    late_s = sum(float(order[5:]) for order in orders if order.startswith("late="))
    def stop(*_):
        time.sleep(late_s)
        with open(f"{folder}/stopped", "a") as file:
            file.write(f"{name}\\n")
        sys.exit(0)
    signal.signal(signal.SIGTERM, stop)
for order in orders:
    if order.startswith("halt="):  # as a replica does: says why, and ends with 3
        notify("X_REASON=HALT " + order[5:])
        sys.exit(3)
    if order.startswith("exit="):
        sys.exit(int(order[5:]))
lives = len(Path(folder, name).read_text().split())
for order in orders:
    if order.startswith("refuse=") and lives <= int(order[7:]):
        sys.exit(1)
if not ("mute" in orders or "once" in orders and lives > 1):
    notify("READY=1", "WATCHDOG=1")
while True:
    time.sleep(0.05)
    notify("WATCHDOG=1")
"""

# The process under test: a supervisor of children given as `name:stop_group:orders`. Those called
# node-... mend themselves; its patience with the others is cut short.
PARENT = """
import asyncio, os, sys
from appliance.node import supervisor
from appliance.node.child import Child
from appliance.node.supervisor import Supervisor
supervisor.SILENT_S_MAX, supervisor.STUCK_S_MAX = 2.0, 3.0
for name in ("STOP_S", "NODE_STOP_S", "REFUSED_S_MIN", "BACKOFF_S_MAX"):
    setattr(supervisor, name, float(os.environ.get(name, getattr(supervisor, name))))
if "SLOW_TO_TELL" in os.environ:
    exec_ = asyncio.create_subprocess_exec
    async def slow(*words, **options):
        process = await exec_(*words, **options)
        await asyncio.sleep(float(os.environ["SLOW_TO_TELL"]))
        return process
    asyncio.create_subprocess_exec = slow
folder, child, *described = sys.argv[1:]
def made(text):
    name, group, orders = text.split(":")
    words = [sys.executable, "-c", child, folder, name, *orders.split()]
    return Child(name, words, int(group), vital=not name.startswith("replica-"),
                 mends_itself=name.startswith("node-"))
supervisor = Supervisor([made(text) for text in described],
                        report=lambda line: print(line, flush=True),
                        on_ready=lambda: print("all ready", flush=True))
sys.exit(asyncio.run(supervisor.run()))
"""

T = TypeVar("T")


class Run:
    """A supervisor's process and what it has printed."""

    def __init__(self, folder: Path, *described: str, notify_to: str = "") -> None:
        self.folder = folder
        environment = {**os.environ, "PYTHONPATH": str(TOP), "NOTIFY_SOCKET": notify_to}
        environment.pop("TIGERCHAT_PARENT", None)
        if notify_to:
            environment["WATCHDOG_USEC"] = "400000"
        self.output = folder / "output"
        with open(self.output, "wb") as file:
            self.process = subprocess.Popen(
                [sys.executable, "-c", PARENT, str(folder), CHILD, *described],
                stdout=file,
                stderr=subprocess.STDOUT,
                env=environment,
            )

    def printed(self) -> str:
        return self.output.read_text()

    def pids(self, name: str) -> list[int]:
        """Of all processes that ran as child `name`, oldest first."""
        path = self.folder / name
        return [int(line) for line in path.read_text().split()] if path.exists() else []

    def until(self, condition: Callable[[], T], what: str) -> T:
        deadline = time.monotonic() + HUNG_S
        while not (result := condition()):
            assert time.monotonic() < deadline, f"{what}; printed:\n{self.printed()}"
            time.sleep(0.01)
        return result

    def until_ready(self) -> None:
        self.until(lambda: "all ready" in self.printed(), "the children never became ready")

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(HUNG_S)

    def alive(self) -> list[int]:
        """Children that still run."""
        names = [path for path in self.folder.iterdir() if path.name not in ("output", "stopped")]
        return [pid for path in names for pid in self.pids(path.name) if running(pid)]


def running(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Callable[..., Run]]:
    runs: list[Run] = []

    def start(*described: str, **options: Any) -> Run:
        runs.append(Run(tmp_path, *described, **options))
        return runs[-1]

    yield start
    for started in runs:
        if started.process.poll() is None:
            started.process.kill()
            started.process.wait(HUNG_S)


def test_children_are_stopped_group_by_group_and_the_code_is_0(run: Callable[..., Run]) -> None:
    supervisor = run("replica:2:", "edge:0:", "console:1:")
    supervisor.until_ready()
    assert supervisor.stop() == 0
    assert (supervisor.folder / "stopped").read_text().split() == ["edge", "console", "replica"]
    assert supervisor.alive() == []


def test_ctrl_c_stops_as_sigterm_does(run: Callable[..., Run]) -> None:
    supervisor = run("edge:0:")
    supervisor.until_ready()
    assert supervisor.stop(signal.SIGINT) == 0
    assert supervisor.alive() == []


def test_a_killed_child_is_started_again_and_again(run: Callable[..., Run]) -> None:
    supervisor = run("replica:0:", "edge:0:")
    supervisor.until_ready()
    for restart in range(3):
        victim = supervisor.pids("replica")[-1]
        os.kill(victim, signal.SIGKILL)
        supervisor.until(lambda n=restart: len(supervisor.pids("replica")) == n + 2, "no restart")
    assert len(supervisor.pids("edge")) == 1
    assert "replica ended (killed by SIGKILL); starting it again in 0.05 s" in supervisor.printed()
    assert supervisor.stop() == 0


def test_a_child_whose_loop_is_stuck_is_killed_and_started_again(run: Callable[..., Run]) -> None:
    supervisor = run("replica:0:", "node-0:0:")
    supervisor.until_ready()
    for name in ("node-0", "replica"):
        os.kill(supervisor.pids(name)[0], signal.SIGSTOP)
    supervisor.until(lambda: len(supervisor.pids("replica")) == 2, "no restart")
    assert supervisor.printed().count("replica was silent for 3 s: killed") == 1
    assert len(supervisor.pids("node-0")) == 1, "one that mends itself was killed"
    os.kill(supervisor.pids("node-0")[0], signal.SIGCONT)
    assert supervisor.stop() == 0


def test_a_machine_that_stood_still_as_a_whole_kills_nobody(run: Callable[..., Run]) -> None:
    supervisor = run("replica:0:", "edge:0:")
    supervisor.until_ready()
    everybody = [supervisor.process.pid, *supervisor.alive()]
    # Longer than any of them may be silent, and then time to judge them, twice.
    for number, lasts_s in ((signal.SIGSTOP, 3.5), (signal.SIGCONT, 2 * ROUND_S_MAX)):
        for pid in everybody:
            os.kill(pid, number)
        time.sleep(lasts_s)
    assert len(supervisor.pids("replica")) == len(supervisor.pids("edge")) == 1
    assert "killed" not in supervisor.printed()
    assert supervisor.stop() == 0


def test_a_child_that_is_ready_before_its_pid_is_known_counts_as_ready(
    run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLOW_TO_TELL", "1")
    supervisor = run("replica:0:", "edge:0:")
    supervisor.until_ready()
    assert supervisor.stop() == 0


async def of_one_child(folder: Path) -> tuple[Supervisor, asyncio.Task[int]]:
    """A supervisor of this process, seen while its one child is spawned: it knows no pid yet."""
    child = Child("node-1", [sys.executable, "-c", CHILD, str(folder), "node-1"], stop_group=0)
    supervisor = Supervisor([child], report=print)
    running_ = asyncio.create_task(supervisor.run())
    while not supervisor.status().children[0].spawning:  # noqa: ASYNC110
        await asyncio.sleep(0)
    assert supervisor.status().children[0].pid is None
    return supervisor, running_


async def until_child(supervisor: Supervisor, condition: Callable[[ChildStatus], bool]) -> None:
    async with within(HUNG_S):
        while not condition(supervisor.status().children[0]):  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def test_a_child_that_is_stopped_while_it_is_spawned_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(TOP))

    async def story() -> None:
        supervisor, running_ = await of_one_child(tmp_path)
        assert supervisor.on_wish({"stop": "node-1"}) == {"done": True}
        await until_child(supervisor, lambda child: not child.spawning and child.pid is None)
        assert supervisor.status().children[0].starts == 1
        assert supervisor.on_wish({"start": "node-1"}) == {"done": True}
        await until_child(supervisor, lambda child: child.ready)
        running_.cancel()
        await asyncio.gather(running_, return_exceptions=True)
        assert supervisor.on_wish({"start": "node-1"}) == {"done": False, "ending": True}

    asyncio.run(story())


def test_a_child_that_is_stopped_and_started_while_it_is_spawned_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(TOP))

    async def story() -> None:
        supervisor, running_ = await of_one_child(tmp_path)
        for verb in ("stop", "start"):
            assert supervisor.on_wish({verb: "node-1"}) == {"done": True}
        await until_child(supervisor, lambda child: child.ready)
        running_.cancel()
        await asyncio.gather(running_, return_exceptions=True)

    asyncio.run(story())


def test_a_child_that_is_not_wanted_holds_nobody_up_and_is_started_when_it_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(TOP))

    async def story() -> None:
        words = [sys.executable, "-c", CHILD, str(tmp_path), "node-1"]
        ready = asyncio.Event()
        children = [
            Child("replica-0", words, stop_group=0, wanted=False),
            Child("node-1", words, stop_group=0),
        ]
        supervisor = Supervisor(children, report=print, on_ready=ready.set)
        running_ = asyncio.create_task(supervisor.run())
        async with within(HUNG_S):
            await ready.wait()
        first = supervisor.status().children[0]
        assert (first.starts, first.pid, first.wanted) == (0, None, False)
        assert supervisor.on_wish({"start": "replica-0"}) == {"done": True}
        await until_child(supervisor, lambda child: child.ready)
        running_.cancel()
        await asyncio.gather(running_, return_exceptions=True)

    asyncio.run(story())


def test_a_child_is_run_by_another_program_until_it_is_to_be_run_by_its_own_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(TOP))
    monkeypatch.setattr(supervisor_module, "BACKOFF_S_MAX", 0.05)
    verb = ["-c", CHILD, str(tmp_path), "node-1"]
    printed: list[str] = []

    async def story() -> None:
        child = Child("node-1", [sys.executable, *verb], stop_group=0, verb=verb)
        supervisor = Supervisor([child], report=printed.append)
        running_ = asyncio.create_task(supervisor.run())

        async def started_by(**program: Any) -> ChildStatus:
            starts = supervisor.status().children[0].starts
            assert supervisor.on_wish({"stop": "node-1"}) == {"done": True}
            await until_child(supervisor, lambda child: child.has_ended)
            assert supervisor.on_wish({"start": "node-1", **program}) == {"done": True}
            await until_child(
                supervisor, lambda child: child.ready or bool(printed) and child.starts > starts + 2
            )
            return supervisor.status().children[0]

        def words(child: ChildStatus) -> list[str]:
            return psutil.Process(child.pid).cmdline()[1:]

        await until_child(supervisor, lambda child: child.ready)
        other = {"program": [sys.executable, "-B"], "source": str(TOP)}
        seen = await started_by(**other)
        assert seen.replaced and words(seen) == ["-B", *verb]
        seen = await started_by()
        assert seen.replaced and words(seen) == ["-B", *verb], "nobody has said otherwise"
        seen = await started_by(program=["/nowhere/tigerchat"], source="")
        assert seen.replaced and not seen.ready
        assert "/nowhere/tigerchat: No such file or directory" in printed[0]
        assert supervisor.on_wish({"stop": "node-1"} | {"program": []}) == {"done": True}
        assert supervisor.on_wish({"start": "node-1"}) == {"done": True}
        await until_child(supervisor, lambda child: child.ready)
        seen = supervisor.status().children[0]
        assert not seen.replaced and words(seen) == verb
        running_.cancel()
        await asyncio.gather(running_, return_exceptions=True)

    asyncio.run(story())


def test_a_child_that_is_forked_is_run_by_no_other_program(tmp_path: Path) -> None:
    child = Child("replica-0", [sys.executable], stop_group=0)
    wish = {"start": "replica-0", "program": ["/bin/true"]}
    supervisor = Supervisor([child], report=print)
    assert supervisor.on_wish(wish) == {"done": False, "fixed": True}
    assert not supervisor.status().children[0].replaced
    supervisor._listener.close()


def test_a_busy_listener_loses_heartbeats_but_no_other_word(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    listener = Listener()
    monkeypatch.setenv(service.SOCKET_VARIABLE, listener.address)
    held = int(Path("/proc/sys/net/unix/max_dgram_qlen").read_text()) + 1
    for _ in range(held + 20):
        service.notify("WATCHDOG=1")
    speaker = os.fork()
    if speaker == 0:
        service.notify("READY=1")
        os._exit(0)
    time.sleep(0.1)
    heard = []
    message, speaks = None, True
    while speaks or message is not None:
        if speaks:  # asked first: its last word may come between the two
            speaks = os.waitpid(speaker, os.WNOHANG) == (0, 0)
        message = listener.receive()
        heard += message[1] if message is not None else []
    listener.close()
    assert heard == ["WATCHDOG=1"] * held + ["READY=1"]


def test_the_pause_before_a_restart_grows_while_a_child_dies_young(run: Callable[..., Run]) -> None:
    supervisor = run("replica:0:exit=7")
    supervisor.until(lambda: len(supervisor.pids("replica")) == 4, "no restarts")
    pauses = [line.rsplit(" ", 2)[1] for line in supervisor.printed().splitlines()]
    assert pauses[:3] == ["0.05", "0.10", "0.20"]
    assert supervisor.stop() == 0


@pytest.mark.parametrize("signal_number", [signal.SIGKILL, signal.SIGSEGV])
def test_no_child_survives_a_supervisor_that_was_killed(
    run: Callable[..., Run], signal_number: Signals
) -> None:
    supervisor = run("replica:0:deaf", "edge:0:deaf mute")
    supervisor.until(lambda: supervisor.pids("replica") and supervisor.pids("edge"), "no start")
    assert len(supervisor.alive()) == 2
    supervisor.process.send_signal(signal_number)
    supervisor.process.wait(HUNG_S)
    supervisor.until(lambda: supervisor.alive() == [], "an orphan")


def test_a_child_that_ignores_the_signal_is_killed_in_the_end(
    run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STOP_S", "1")
    supervisor = run("replica:0:deaf")
    supervisor.until_ready()
    started = time.monotonic()
    assert supervisor.stop() == 0
    assert time.monotonic() - started > 0.9
    assert "replica did not stop in 1 s: killed" in supervisor.printed()
    assert supervisor.alive() == []


def test_a_node_has_the_time_to_end_its_own_processes_and_others_have_that_of_one(
    run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STOP_S", "1")
    supervisor = run("node-0:0:late=1.6", "replica:1:late=1.6")
    supervisor.until_ready()
    assert supervisor.stop() == 0
    assert "node-0 did not stop" not in supervisor.printed()
    assert "replica did not stop in 1 s: killed" in supervisor.printed()
    assert (supervisor.folder / "stopped").read_text().split() == ["node-0"]


def test_asked_twice_to_stop_it_kills_at_once(run: Callable[..., Run], listener: Listener) -> None:
    supervisor = run("replica:0:deaf", notify_to=listener.address)
    supervisor.until_ready()
    supervisor.process.send_signal(signal.SIGINT)
    supervisor.until(lambda: "STOPPING=1" in messages_at(listener), "never asked")
    assert supervisor.stop(signal.SIGINT) == 0  # before that the two may count as one
    assert "did not stop in 4 s" not in supervisor.printed()
    assert supervisor.alive() == []


def test_a_mistake_of_the_operator_stops_the_node_with_code_2(run: Callable[..., Run]) -> None:
    supervisor = run("edge:0:exit=2", "replica:1:")
    assert supervisor.process.wait(HUNG_S) == 2
    assert len(supervisor.pids("edge")) == 1
    assert "edge cannot start (exit code 2)" in supervisor.printed()
    assert supervisor.alive() == []


def test_a_child_that_is_refused_again_and_again_stops_the_node_with_code_1(
    run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    least_s = 1.2  # all refusals that are needed come sooner
    monkeypatch.setenv("REFUSED_S_MIN", str(least_s))
    started = time.monotonic()
    supervisor = run("replica:0:exit=1", "edge:0:")
    assert supervisor.process.wait(HUNG_S) == 1
    assert time.monotonic() - started > least_s
    assert len(supervisor.pids("replica")) >= REFUSALS_MIN
    assert "replica cannot start (exit code 1)" in supervisor.printed()
    assert supervisor.alive() == []


def test_a_child_whose_killed_predecessor_is_slow_to_go_starts_in_the_end(
    run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BACKOFF_S_MAX", "0.3")
    refusals = REFUSALS_MIN + 2
    supervisor = run(f"replica:0:refuse={refusals}", "edge:0:")
    supervisor.until_ready()
    assert len(supervisor.pids("replica")) == refusals + 1
    assert supervisor.stop() == 0


def test_a_halted_replica_is_tried_again_slowly_and_the_others_go_on(
    run: Callable[..., Run],
) -> None:
    supervisor = run("replica:0:exit=3", "edge:0:")
    supervisor.until(lambda: "starting it again in 5.00 s" in supervisor.printed(), "no slow retry")
    supervisor.until(lambda: len(supervisor.alive()) == 1, "the edge does not run")
    assert len(supervisor.pids("replica")) == 1
    assert supervisor.stop() == 0


def messages_at(listener: Listener) -> list[str]:
    """What the service manager has heard since the last look."""
    fields: list[str] = []
    while (message := listener.receive()) is not None:
        fields += message[1]
    return fields


@pytest.fixture
def listener() -> Iterator[Listener]:
    made = Listener()
    yield made
    made.close()


def test_readiness_waits_for_the_last_child(run: Callable[..., Run], listener: Listener) -> None:
    supervisor = run("replica:0:", "edge:0:mute", notify_to=listener.address)
    supervisor.until(lambda: supervisor.pids("edge") and supervisor.pids("replica"), "no start")
    time.sleep(0.5)
    assert messages_at(listener) == []
    assert supervisor.stop() == 0
    assert messages_at(listener) == ["STOPPING=1"]


def test_the_watchdog_is_fed_only_while_every_child_is_well(
    run: Callable[..., Run], listener: Listener
) -> None:
    supervisor = run("replica:0:", "edge:0:once", notify_to=listener.address)
    heard: list[str] = []

    def fed() -> bool:
        heard.extend(messages_at(listener))
        return "WATCHDOG=1" in heard

    def kill(name: str) -> None:
        os.kill(supervisor.pids(name)[-1], signal.SIGKILL)
        supervisor.until(lambda: len(supervisor.pids(name)) == 2, "no restart")
        messages_at(listener)
        heard.clear()

    supervisor.until(fed, "never fed")
    assert heard[0] == "READY=1"
    kill("replica")
    supervisor.until(fed, "not fed again after the restart")
    kill("edge")
    time.sleep(0.8)  # twice the time after which a service manager would act
    assert not fed()
    assert supervisor.stop() == 0


def test_a_halted_child_is_told_and_takes_nobody_else_down(
    run: Callable[..., Run], listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its service manager hears READY and WATCHDOG, and why one of the children does not serve."""
    monkeypatch.setenv("BACKOFF_S_MAX", "0.4")
    supervisor = run("replica-0:0:halt=DISK_FULL", "replica-1:0:", notify_to=listener.address)
    heard: list[str] = []

    def said(what: str) -> bool:
        heard.extend(messages_at(listener))
        return any(what in field for field in heard)

    supervisor.until(lambda: said("READY=1"), "never ready")
    supervisor.until(lambda: said("WATCHDOG=1"), "never fed")
    assert said("STATUS=1 of 2 processes serve; replica-0 halted: HALT DISK_FULL")
    supervisor.until(lambda: len(supervisor.pids("replica-0")) == 3, "no slow retries")
    heard.clear()
    supervisor.until(lambda: said("WATCHDOG=1"), "no longer fed")
    assert len(supervisor.pids("replica-1")) == 1
    assert supervisor.stop() == 0


def test_a_replica_that_is_refused_for_long_does_not_stop_the_others(
    run: Callable[..., Run], listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as one whose volume is gone; it is tried again, for the volume may come back."""
    refusals, least_s = REFUSALS_MIN + 5, 1.0
    monkeypatch.setenv("BACKOFF_S_MAX", "0.3")
    monkeypatch.setenv("REFUSED_S_MIN", str(least_s))  # the pauses alone last longer
    started = time.monotonic()
    supervisor = run(f"replica-0:0:refuse={refusals}", "replica-1:0:", notify_to=listener.address)
    supervisor.until_ready()
    supervisor.until(lambda: len(supervisor.pids("replica-0")) == refusals + 1, "not tried again")
    assert time.monotonic() - started > least_s
    assert len(supervisor.pids("replica-1")) == 1
    assert supervisor.stop() == 0


def test_replicas_that_are_all_refused_stop_the_node(
    run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REFUSED_S_MIN", "0.8")
    supervisor = run("replica-0:0:exit=1", "replica-1:0:exit=1", "edge:0:")
    assert supervisor.process.wait(HUNG_S) == 1
    assert supervisor.alive() == []


def test_strangers_cannot_speak_for_a_child(run: Callable[..., Run]) -> None:
    supervisor = run("replica:0:mute")
    supervisor.until(lambda: supervisor.pids("replica"), "no start")
    environment = psutil.Process(supervisor.pids("replica")[0]).environ()
    before = os.environ.get(service.SOCKET_VARIABLE)
    os.environ[service.SOCKET_VARIABLE] = environment[service.SOCKET_VARIABLE]
    try:
        service.notify("READY=1")
    finally:
        if before is None:
            del os.environ[service.SOCKET_VARIABLE]
        else:
            os.environ[service.SOCKET_VARIABLE] = before
    time.sleep(0.3)
    assert "all ready" not in supervisor.printed()
    assert supervisor.stop() == 0
