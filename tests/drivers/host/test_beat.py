"""The beat of a role: it goes on whatever the machine refuses, and says how it is when it is."""

import asyncio
import contextlib
import errno
import logging
import os
import resource
import secrets
import signal
import socket
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import systemd.daemon
import uvloop

from appliance.base.errors import ConfigurationError, StorageError
from appliance.drivers.host import service
from appliance.drivers.host.beat import EXIT_BUG, Beat
from appliance.drivers.host.lifetime import Lifetime
from appliance.formats.status.process import Turns
from appliance.node.forked import STANDARD_DESCRIPTORS
from appliance.node.supervisor import ROUND_S_MAX, SILENT_S_MAX, STUCK_S_MAX
from tests.clockwork import passing, run
from tests.patience import HUNG_S

LOG = logging.getLogger("tigerchat.beat")
NO_DESCRIPTOR = OSError(errno.EMFILE, "Too many open files")
NO_FILE = OSError(errno.EIO, "Input/output error")
TICK_S = 0.01


class Role:
    """A role whose second fails as it is told to; everything that is said is kept."""

    def __init__(self, end: Callable[[], None] | None = None) -> None:
        self.life = Lifetime()
        self.fails: BaseException | None = None
        self.seconds = 0
        self.beat = Beat("toy", LOG, self.life, second=self.second, end=end)

    def second(self) -> None:
        self.seconds += 1
        if self.fails is not None:
            raise self.fails


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Fields that the supervisor hears."""
    heard: list[str] = []
    monkeypatch.setattr(service, "notify", lambda *fields: heard.extend(fields))
    return heard


def by_seconds(role: Role) -> None:
    role.beat.seconds()


def by_ticks(role: Role) -> None:
    role.beat.ticks(TICK_S, idle=lambda: 24, count=lambda ticks: None).start()


async def seconds(count: int) -> None:
    """They pass turn by turn, as for the ticks of a quiet role."""
    for _ in range(count * 4):
        await passing(0.25)


@pytest.mark.parametrize("drive", [by_seconds, by_ticks])
def test_an_error_of_the_machine_ends_one_second_and_no_other(
    drive: Callable[[Role], None], said: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        role = Role()
        role.beat.lead()
        role.fails = NO_FILE  # from the very first on
        drive(role)
        await seconds(5)
        assert said == [], "a process that is started again may do better"
        assert role.seconds == role.beat.told().weather == 6
        role.fails = None
        await seconds(5)
        assert said == ["WATCHDOG=1"] * 5
        assert not role.life.asked.is_set() and role.beat.exit_code == 0
        await role.life.close()
        await seconds(5)
        assert role.seconds == 11, "a role that is closed has no beat"

    with caplog.at_level(logging.WARNING, LOG.name):
        run(story)
    warned = [entry.getMessage() for entry in caplog.records]
    assert warned[0] == "the beat: [Errno 5] Input/output error"


def of_ours(error: OSError) -> ConfigurationError:
    """One that `error` led to."""
    made = ConfigurationError("cannot be read")
    made.__cause__ = error
    return made


WANTS = {
    "descriptors": NO_DESCRIPTOR,
    "descriptors of the machine": OSError(errno.ENFILE, "Too many open files in system"),
    "memory": OSError(errno.ENOMEM, "Cannot allocate memory"),
    "buffers": OSError(errno.ENOBUFS, "No buffer space available"),
    "space": OSError(errno.ENOSPC, "No space left on device"),
    "a share of it": OSError(errno.EDQUOT, "Disk quota exceeded"),
    "descriptors, as we say it": of_ours(NO_DESCRIPTOR),
}


@pytest.mark.parametrize("drive", [by_seconds, by_ticks])
@pytest.mark.parametrize("want", WANTS)
def test_a_loop_that_turns_is_heard_though_its_work_wants_what_no_new_process_would_have(
    want: str, drive: Callable[[Role], None], said: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    """It serves: killed for that it would serve nobody."""

    async def story() -> None:
        role = Role()
        role.beat.lead()
        role.fails = WANTS[want]
        drive(role)
        await seconds(int(STUCK_S_MAX) + 3)
        assert role.seconds == role.beat.told().weather == len(said) > STUCK_S_MAX
        assert set(said) == {"WATCHDOG=1"}
        assert not role.life.asked.is_set() and role.beat.exit_code == 0
        await role.life.close()

    with caplog.at_level(logging.WARNING, LOG.name):
        run(story)
    assert len(caplog.records) > STUCK_S_MAX, "it is told each second"


def forked(story: Callable[[], None]) -> int:
    """`story` in a fork of this process; 0, or why not."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            story()
            code = 0
        finally:
            if code:
                traceback.print_exc()
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@contextlib.contextmanager
def heard_at(address: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """A listener that is not ours, at an address of the service manager's protocol."""
    name = "\0" + address[1:] if address.startswith("@") else address
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(name)
        listener.settimeout(HUNG_S)
        monkeypatch.setenv(service.SOCKET_VARIABLE, address)
        yield listener


@pytest.mark.parametrize("abstract", [True, False])
def test_whoever_started_a_process_hears_it_at_a_path_and_at_a_name(
    abstract: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = f"@tigerchat-{secrets.token_hex(8)}" if abstract else str(tmp_path / "notify")
    with heard_at(address, monkeypatch) as listener:
        service.notify("READY=1", "STATUS=all is \0 well")
        assert listener.recv(4096) == b"READY=1\nSTATUS=all is   well"
    service.notify(service.WATCHDOG)  # it is gone


def test_it_is_systemd_s_own_library_that_sends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sent: list[str] = []
    monkeypatch.setattr(systemd.daemon, "notify", sent.append)
    monkeypatch.delenv(service.SOCKET_VARIABLE, raising=False)
    service.notify("READY=1")
    assert sent == [], "nobody listens"
    monkeypatch.setenv(service.SOCKET_VARIABLE, "@somebody")
    service.notify("READY=1", "STATUS=serves")
    assert sent == ["READY=1\nSTATUS=serves"]


def takes_what_is_left() -> None:
    """Until this process has no descriptor left, and none to be had by asking for more."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    few = min(most, 200)
    resource.setrlimit(resource.RLIMIT_NOFILE, (few, few))
    with contextlib.suppress(OSError):
        while True:
            os.dup(0)


def is_told_fewer() -> None:
    """An operator lets this process have fewer than it has open."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))


@pytest.mark.parametrize("starve", [takes_what_is_left, is_told_fewer])
def test_how_a_process_is_can_be_said_when_it_has_no_descriptor_left(
    starve: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def leads() -> None:
        Beat("toy", LOG, Lifetime()).lead()

    def story() -> None:
        asyncio.run(leads())
        starve()
        with pytest.raises(OSError, match="Too many open files"):
            socket.socket()
        service.notify("READY=1", "STATUS=serves")
        for _ in range(3):
            service.notify(service.WATCHDOG)
        with pytest.raises(OSError, match="Too many open files"):
            socket.socket()

    listener = service.Listener()
    monkeypatch.setenv(service.SOCKET_VARIABLE, listener.address)
    assert forked(story) == 0
    heard = [listener.receive() for _ in range(4)]
    listener.close()
    assert [message and message[1] for message in heard] == [
        ["READY=1", "STATUS=serves"],
        *[["WATCHDOG=1"]] * 3,
    ]


def test_a_fork_that_keeps_no_descriptor_of_its_parent_is_heard_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A supervisor that has a supervisor itself says how it is before it forks roles."""

    def story() -> None:
        os.closerange(STANDARD_DESCRIPTORS, os.sysconf("SC_OPEN_MAX"))
        kept = os.open(os.devnull, os.O_RDONLY)  # by the number that the parent's had, perhaps
        others = [os.dup(kept) for _ in range(100)]
        service.notify("READY=1")
        for descriptor in (kept, *others):
            os.fstat(descriptor)  # it is still there

    listener = service.Listener()
    monkeypatch.setenv(service.SOCKET_VARIABLE, listener.address)
    service.notify("STATUS=parent")
    assert forked(story) == 0
    heard = [listener.receive() for _ in range(2)]
    listener.close()
    assert [message and message[1] for message in heard] == [["STATUS=parent"], ["READY=1"]]


@pytest.mark.parametrize("run_loop", [asyncio.run, uvloop.run])
def test_a_busy_listener_is_waited_for_a_while_and_not_for_a_mere_beat(
    run_loop: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also in a loop, which hears of signals itself; a timer of whoever called goes on."""
    monkeypatch.setattr(service, "BUSY_S_MAX", 0.2)
    listener = service.Listener()
    monkeypatch.setenv(service.SOCKET_VARIABLE, listener.address)
    held = int(Path("/proc/sys/net/unix/max_dgram_qlen").read_text()) + 1
    before = signal.getsignal(signal.SIGALRM), signal.setitimer(signal.ITIMER_REAL, 900, 7)
    spent: list[float] = []

    async def story() -> None:
        for _ in range(held + 20):
            service.notify(service.WATCHDOG)
        begun = time.monotonic()
        service.notify("STATUS=is not heard")
        spent.append(time.monotonic() - begun)
        await asyncio.sleep(0)

    try:
        run_loop(story())
        left = signal.getitimer(signal.ITIMER_REAL)
        assert 0 < left[0] <= 900 and left[1] == 7
        assert signal.getsignal(signal.SIGALRM) == before[0]
    finally:
        signal.setitimer(signal.ITIMER_REAL, *before[1])
    heard = []
    while (message := listener.receive()) is not None:
        heard += message[1]
    listener.close()
    assert heard == ["WATCHDOG=1"] * held
    assert spent[0] >= 0.2


def test_an_error_of_the_machine_in_a_tick_of_the_core_is_not_the_last_tick(
    said: list[str],
) -> None:
    async def story() -> None:
        role, counted = Role(), 0
        role.beat.lead()

        def count(ticks: int) -> None:
            nonlocal counted
            counted += ticks
            if 1 < counted < 4:
                raise NO_DESCRIPTOR

        role.beat.ticks(TICK_S, idle=lambda: 0, count=count).start()
        for _ in range(9):
            await passing(TICK_S)
        assert counted == 10 and role.beat.told().weather == 2

    run(story)


def test_what_nobody_caught_is_weather_when_the_machine_refused_it(
    said: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    """However often it comes, it is counted, and warned of once a second."""

    async def story() -> None:
        role = Role()
        role.beat.lead()

        def refused() -> None:
            raise NO_DESCRIPTOR

        for _ in range(100):
            asyncio.get_running_loop().call_soon(refused)
        await passing(0)
        assert role.beat.told() == Turns(weather=100)
        assert not role.life.asked.is_set() and said == []

    with caplog.at_level(logging.WARNING, LOG.name):
        run(story)
    assert len(caplog.records) == 1


@pytest.mark.parametrize("cause", [NO_DESCRIPTOR, None])
def test_an_error_of_ours_is_weather_where_the_machine_led_to_it(cause: OSError | None) -> None:
    def reads() -> None:
        raise ConfigurationError("no such file") from cause

    async def story() -> None:
        role = Role()
        if cause is None:
            with pytest.raises(ConfigurationError), role.beat.weathers():
                reads()
        with role.beat.weathers():
            raise StorageError("no quorum in 30 s")
        if cause is not None:
            with role.beat.weathers():
                reads()
        assert role.beat.told().weather == (1 if cause is None else 2)

    run(story)


def test_a_process_without_a_descriptor_ends_in_order_and_claims_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def story() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
        service.notify("STOPPING=1")
        service.notify("STATUS=why", "X_REASON=why")
        for word in ("READY=1", "WATCHDOG=1"):
            with pytest.raises(OSError, match="Too many open files"):
                service.notify(word)

    monkeypatch.setenv(service.SOCKET_VARIABLE, "@nobody")
    assert forked(story) == 0


def broken() -> None:
    raise ValueError("not to be\nbelieved")


async def breaks() -> None:
    broken()


async def refuses() -> None:
    raise NO_DESCRIPTOR


def in_a_callback(role: Role) -> None:
    asyncio.get_running_loop().call_soon(broken)


def in_its_second(role: Role) -> None:
    role.beat.seconds()
    role.fails = ValueError("not to be\nbelieved")


def in_a_task(role: Role) -> None:
    role.beat.task(asyncio.ensure_future(breaks()))


@pytest.mark.parametrize("where", [in_a_callback, in_its_second, in_a_task])
def test_a_bug_ends_the_role_with_its_reason(
    where: Callable[[Role], None], said: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    async def story() -> None:
        role = Role()
        role.beat.lead()
        where(role)
        await seconds(1)
        assert role.life.asked.is_set() and role.beat.exit_code == EXIT_BUG

    run(story)
    assert said[-2:] == [
        "STATUS=ValueError not to be believed",
        "X_REASON=ValueError not to be believed",
    ]
    assert "tigerchat: toy stops: ValueError not to be" in capfd.readouterr().err


def test_a_task_that_nobody_would_do_again_ends_the_role_by_weather_too(said: list[str]) -> None:
    async def story() -> None:
        ended: list[str] = []
        role = Role(end=lambda: ended.append("told"))
        role.beat.lead()
        role.beat.task(asyncio.ensure_future(asyncio.sleep(3600)))
        role.beat.watch(asyncio.ensure_future(refuses()))
        await passing(0)
        assert (ended, role.beat.exit_code) == (["told"], EXIT_BUG)
        await role.life.close()
        assert ended == ["told"], "one that is cancelled ends as it should"

    run(story)


def test_a_role_that_loses_more_than_its_process_does_what_it_must_at_a_bug() -> None:
    async def story() -> None:
        halted: list[str] = []
        beat = Beat("toy", LOG, Lifetime(), on_bug=lambda error: halted.append(repr(error)))
        beat.lead()
        asyncio.get_running_loop().call_soon(broken)
        await passing(0)
        assert halted == ["ValueError('not to be\\nbelieved')"] and beat.exit_code == 0

    run(story)


@pytest.mark.parametrize("turn_s", [0.01, 0.3, 5.0])
def test_a_loop_whose_turns_are_late_is_heard_each_second_of_the_clock(
    turn_s: float, said: list[str]
) -> None:
    """Seen on a busy machine: as many turns as make a second took 15 s, and it was killed."""

    async def story() -> None:
        role = Role()
        for _ in range(int(10 / turn_s)):
            role.beat.turned()
            await passing(turn_s)
        assert len(said) == pytest.approx(min(10, 10 / turn_s), abs=2)
        assert role.beat.told().seconds_late == (4 if turn_s == 5.0 else 0)

    run(story)


def test_stalls_are_counted(said: list[str]) -> None:
    async def story() -> None:
        role = Role()
        by_ticks(role)
        await seconds(3)
        assert role.beat.told() == Turns(ticks_late=0)
        await passing(3.5)
        assert role.beat.told() == Turns(seconds_late=2, ticks_late=1)

    run(story)


def test_a_beat_that_stands_is_told_within_3_s_and_ended_so_that_10_are_enough() -> None:
    """A role is heard a second before it stands at the latest; one that is asked to end by then is
    looked at once a round; 1 s is left for the start."""
    assert SILENT_S_MAX <= 3.0
    assert service.HEARTBEAT_S + ROUND_S_MAX / 2 <= SILENT_S_MAX, "one that is well is not told"
    assert STUCK_S_MAX + ROUND_S_MAX + 1.0 <= 10.0
