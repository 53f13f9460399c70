"""Each role stops in order, though a beat of it is due in the very turn in which it is told to."""

import asyncio
import dataclasses
import logging
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from appliance.drivers.host import process, service
from appliance.drivers.host.node_folder import NodeFolder, open_node
from appliance.formats.site_view import SiteView
from appliance.node.catalogue import ROLES, RoleRow
from appliance.roles.replica import role as replica
from tests import forked
from tests.patience import HUNG_S
from tests.ports import FreePorts
from tests.system.local_site import ports_in_a_row

MOMENTS = 7  # hundredths of a second after which a role is stopped
STOPS, STOPS_SOAK = MOMENTS, 20
LEAP_S = 6.0  # every beat of a role comes more often than that
LATER_TURNS = 50  # of the loop: what was left going and is due would be heard of in these


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory, free_ports: FreePorts) -> NodeFolder:
    """Of a site of one node, with all that a role wants to find."""
    site = tmp_path_factory.mktemp("stops") / "site"
    small = ("--nodes", "1", "--geometry", "small", "--brief")
    words = ["--ports", ports_in_a_row(free_ports), *small]
    for said in (["format", *words], ["federation", "init", "north"]):
        done = forked.run([*said, "--local", site])
        assert done.returncode == 0, done.stderr
    found = open_node(site / "node-0")
    keeping = dataclasses.replace(found.site, retention_days=7)
    return dataclasses.replace(found, view=SiteView(keeping))


class Leaping(asyncio.SelectorEventLoop):
    """A loop whose clock can leap: all beats that would have come meanwhile are due at once."""

    leapt_s = 0.0

    def time(self) -> float:
        return super().time() + self.leapt_s


class Life:
    """One life of a role, in a loop of this process."""

    def __init__(self, row: RoleRow, node: NodeFolder) -> None:
        self.row, self.node = row, node
        self.ready = asyncio.Event()
        self.lost: list[str] = []  # what nobody caught, and what was left going

    def hear(self, *fields: str) -> None:
        if "READY=1" in fields:
            self.ready.set()

    async def lead(self, stop: Callable[[], None], after_s: float) -> int:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, Leaping)
        role = self.row.make(self.node, 0, logging.getLogger("tigerchat.stops"))
        serving = loop.create_task(role.serve())
        ready = loop.create_task(self.ready.wait())
        async with asyncio.timeout(HUNG_S):
            await asyncio.wait((serving, ready), return_when=asyncio.FIRST_COMPLETED)
            await asyncio.sleep(after_s)
            loop.leapt_s += LEAP_S
            stop()
            code = await serving
        loop.set_exception_handler(lambda _, context: self.lost.append(str(context)))
        loop.leapt_s += LEAP_S
        for _ in range(LATER_TURNS):
            await asyncio.sleep(0)
        self.lost += [
            f"left going: {task.get_name()}"
            for task in asyncio.all_tasks(loop)
            if task is not asyncio.current_task() and not task.done()
        ]
        return code


@pytest.mark.parametrize("stops", [STOPS, pytest.param(STOPS_SOAK, marks=pytest.mark.soak)])
@pytest.mark.parametrize("row", ROLES, ids=lambda row: row.name)
def test_a_role_that_is_told_to_stop_leaves_nothing_going(
    row: RoleRow,
    stops: int,
    node: NodeFolder,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    seed: int,
) -> None:
    monkeypatch.chdir(node.path)
    monkeypatch.setattr(replica, "lock_replica", lambda folder, shard: 0)  # held by a life before
    for number in range(stops):
        monkeypatch.setattr(process, "_stop_calls", [])
        life = Life(row, node)
        monkeypatch.setattr(service, "notify", life.hear)
        with asyncio.Runner(loop_factory=Leaping) as runner:
            code = runner.run(life.lead(process._stop_all, (seed + number) % MOMENTS / 100))
        assert (code, life.lost) == (0, []), f"stop {number}"
        said = [entry.getMessage() for entry in caplog.records if entry.levelno >= logging.WARNING]
        assert said == [], f"stop {number}"


def test_every_role_has_the_one_beat_and_no_other() -> None:
    """Which arms first, ends with the role's life, and says WATCHDOG=1 when the work is done."""
    folder = Path(replica.__file__).parents[1]
    texts = {path: path.read_text() for path in sorted(folder.rglob("*.py"))}
    other = re.compile(r"WATCHDOG|set_exception_handler|\.every\(")
    assert [str(path) for path, text in texts.items() if other.search(text)] == []
    for row in ROLES:
        path = folder.parents[1] / f"{row.module.replace('.', '/')}.py"
        assert re.search(r"beat\.lead\(\)", texts[path]), row.name
