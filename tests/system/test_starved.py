"""A site of one node whose processes get no descriptor for a while, and of which one is stopped."""

import resource
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil
import pytest

from appliance.drivers.host.neighbours import neighbours
from appliance.drivers.network.ask import ask_status
from appliance.formats.site import SITE_FILE
from appliance.node.catalogue import ROLES
from appliance.roles.console.watch import Watch
from tests.patience import HUNG_S
from tests.ports import FreePorts
from tests.system.federated_site import said
from tests.system.local_site import SLOWER_MAX, ports_in_a_row, wait_until
from tests.system.whole_site import WholeSite

STUCK_S = 5.0  # after which a supervisor ends a silent role here: twice that for an alarm
WITHOUT_S = 2.5  # more than a beat: whoever arms the next one last has none any more
ROOM = "lobby"
BACK_S = 10.0  # for one that stands still to be told, and to be back
NO_MORE = 4  # descriptors: fewer than any process has
ASKED = {"replica": "shard"}  # by another name than its own; the keeper is asked by nobody


class Whole(WholeSite):
    """Asked by its own words."""

    def kept(self) -> dict[str, dict[str, Any]]:
        """The node's processes by name, as their supervisor keeps them."""
        told = self._ask("supervisor")
        return {} if told is None else {child["name"]: child for child in told["children"]}

    def silent(self) -> list[str]:
        """Roles that do not answer, or that their supervisor has not heard lately."""
        rows = [row for row in ROLES if row.name != "keeper"]
        mute = [row.name for row in rows if self._ask(ASKED.get(row.name, row.name)) is None]
        found = self.kept().items()
        return mute + [name for name, child in found if child["silent_ms"] or not child["ready"]]

    def carries(self) -> bool:
        """Whether the shared rooms are: what that opens, it opens only then."""
        return any(shard.carries for told in self.told() if told for shard in told.shards)

    def _ask(self, kind: str) -> dict[str, Any] | None:
        folder = self.place(0) / "sockets"
        return ask_status(folder, cluster=self.site.cluster, shard=0, kind=kind)

    def alarms(self) -> set[tuple[str, str]]:
        watch = Watch(
            self.folder / SITE_FILE,
            self.site,
            lambda site: neighbours(self.place(0), site),
            ROLES,
        )
        watch.poll()
        return {(alarm.name, alarm.subject) for alarm in watch.console.alarms()}


@pytest.fixture
def site(tmp_path: Path, free_ports: FreePorts) -> Iterator[Whole]:
    stuck = {"appliance.node.supervisor.STUCK_S_MAX": STUCK_S}
    with Whole(tmp_path / "site", ports_in_a_row(free_ports), constants=stuck) as made:
        yield made


def knock(stack: ExitStack, ports: list[int]) -> None:
    """Somebody comes to each port, and waits to be let in."""
    for port in ports:
        sock = stack.enter_context(socket.socket())
        sock.setblocking(False)
        sock.connect_ex(("127.0.0.1", port))


def test_each_role_outlives_a_want_of_descriptors_and_one_that_is_stopped_comes_back(
    site: Whole,
) -> None:
    wait_until(
        lambda: site.carries() and not site.silent(),
        HUNG_S / SLOWER_MAX,
        lambda: f"serve: {site.silent()}",
    )
    before = site.kept()
    assert {row.process_name(0) for row in ROLES} == set(before)
    roles = [psutil.Process(child["pid"]) for child in before.values()]
    ports = {c.laddr.port for p in roles for c in p.net_connections("tcp") if c.status == "LISTEN"}
    with ExitStack() as stack:
        for role in roles:
            bounds = resource.prlimit(role.pid, resource.RLIMIT_NOFILE)
            few = NO_MORE, bounds[1]
            stack.callback(resource.prlimit, role.pid, resource.RLIMIT_NOFILE, bounds)
            resource.prlimit(role.pid, resource.RLIMIT_NOFILE, few)
        knock(stack, sorted(ports))
        time.sleep(WITHOUT_S)
    begun = time.monotonic()
    wait_until(lambda: not site.silent(), HUNG_S / SLOWER_MAX, lambda: f"again: {site.silent()}")
    print(f"all serve again after {time.monotonic() - begun:.1f} s")
    assert {name: child["pid"] for name, child in site.kept().items()} == {
        name: child["pid"] for name, child in before.items()
    }, "nobody had to be started again"
    # with a token of now, which an edge takes whose clock goes on
    said("room", "create", ROOM, "--local", str(site.folder))
    said("send", "--local", str(site.folder), ROOM, "still here")
    assert site.texts(ROOM) == ["still here"]

    stopped = psutil.Process(before["keeper"]["pid"])
    stopped.send_signal(signal.SIGSTOP)
    begun = time.monotonic()
    alarm = "role_stuck", "keeper on node-0"
    wait_until(lambda: alarm in site.alarms(), HUNG_S / SLOWER_MAX, lambda: f"{site.alarms()}")
    print(f"an alarm after {time.monotonic() - begun:.1f} s")
    wait_until(
        lambda: site.kept()["keeper"]["starts"] == 2 and not site.silent(),
        HUNG_S / SLOWER_MAX,
        lambda: f"started again: {site.kept()['keeper']}",
    )
    print(f"serves again after {time.monotonic() - begun:.1f} s")
    assert not stopped.is_running() and alarm not in site.alarms()
    assert all(child["starts"] == 1 for name, child in site.kept().items() if name != "keeper")


@pytest.mark.soak
def test_each_role_that_stands_still_is_told_and_started_again_alone(
    tmp_path: Path, free_ports: FreePorts
) -> None:
    """Within 10 s, as a supervisor outside of tests does it; the others serve on."""
    with Whole(tmp_path / "site", ports_in_a_row(free_ports)) as site:
        for row in ROLES:
            name = row.process_name(0)
            wait_until(lambda: not site.silent(), HUNG_S / SLOWER_MAX, lambda: f"{site.silent()}")
            before = site.kept()
            stopped = psutil.Process(before[name]["pid"])
            stopped.suspend()
            begun, alarm = time.monotonic(), ("role_stuck", f"{name} on node-0")
            wait_until(lambda a=alarm: a in site.alarms(), BACK_S, lambda: f"{site.alarms()}")
            told_s = time.monotonic() - begun
            wait_until(
                lambda n=name, b=before: (
                    (now := site.kept()[n])["starts"] == b[n]["starts"] + 1 and now["ready"]
                ),
                BACK_S,
                lambda n=name: f"started again: {site.kept()[n]}",
            )
            print(f"{name}: told after {told_s:.1f} s, back {time.monotonic() - begun:.1f} s")
            assert {key: child["pid"] for key, child in site.kept().items() if key != name} == {
                key: child["pid"] for key, child in before.items() if key != name
            }
