"""A member that the network cuts off, and gives back: nobody has to choose a leader anew."""

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance.cores.raft.effects import HardState
from appliance.roles.farm.storage import FarmStorage
from tests import forked
from tests.patience import HUNG_S
from tests.roles.farm.cluster import Cluster, Process
from tests.system.local_site import wait_until
from tests.system.network import Switch, host

MEMBERS = (1, 2, 3)
ELECTION_MS = (700, 1400)  # longer than a busy machine lets a member or its disk stand still
TIMEOUTS, TIMEOUTS_IN_SOAK = 2, 10


class Parted(Cluster):
    """Members in network namespaces of their own, member i at place i - 1 of the switch."""

    def __init__(self, folder: Path, switch: Switch) -> None:
        self.switch = switch
        super().__init__(folder, [7650, 7650, 7650], static=3)
        low, high = ELECTION_MS
        self.options = ["--election-ms", f"{low}-{high}", "--heartbeat-ms", str(low // 4)]

    def host(self, member: int) -> str:
        return host(member - 1)

    def started(self, member: int, log: int) -> Process:
        there = self.switch.namespace(member - 1)
        return forked.start(self.words(member), environment=os.environ, output=log, namespace=there)

    def post(self, value: str) -> int:
        """From the clients' namespace; the leader that said yes."""
        words = ["farm", "post", "--user", "poster"]
        words += ["--password-file", str(self.folder / "password"), value]
        for member in MEMBERS:
            words += ["--peer", f"{member}={self.endpoint(member)}"]
            words += ["--pin", f"{member}={self.pins[member].hex()}"]
        done = forked.run(words, namespace=self.switch.load)
        assert done.returncode == 0, done.stderr
        return int(json.loads(done.stdout)["leader"])

    def term_and_last(self, member: int) -> tuple[int, int]:
        storage = FarmStorage(self.member_folder(member) / "store", read_only=True)
        try:
            saved = storage.load(HardState())
        finally:
            storage.close()
        return saved.state.term, saved.before + len(saved.entries)


@pytest.fixture
def parted(tmp_path: Path) -> Iterator[Parted]:
    with Switch(len(MEMBERS)) as switch:
        cluster = Parted(tmp_path / "farm", switch)
        try:
            cluster.start(*MEMBERS)
            yield cluster
        finally:
            cluster.end()


@pytest.mark.parametrize(
    "timeouts", [TIMEOUTS, pytest.param(TIMEOUTS_IN_SOAK, marks=pytest.mark.soak)]
)
def test_a_member_cut_off_for_several_election_timeouts_moves_no_term_and_no_leader(
    parted: Parted, timeouts: int
) -> None:
    leader = parted.post('{"before":1}')
    terms = {member: parted.term_and_last(member)[0] for member in MEMBERS}
    assert len(set(terms.values())) == 1
    away = next(member for member in MEMBERS if member != leader)
    others = [member - 1 for member in MEMBERS if member != away]
    parted.switch.cut([p for other in others for p in ((other, away - 1), (away - 1, other))])
    time.sleep(timeouts * ELECTION_MS[1] / 1000)
    assert parted.post('{"meanwhile":1}') == leader
    assert parted.switch.dropped(away - 1) > 0
    assert parted.term_and_last(away)[1] < parted.term_and_last(leader)[1]  # it heard nothing
    parted.switch.heal()
    wait_until(
        lambda: parted.term_and_last(away)[1] == parted.term_and_last(leader)[1],
        HUNG_S,
        "caught up",
    )
    assert parted.post('{"after":1}') == leader
    assert {member: parted.term_and_last(member)[0] for member in MEMBERS} == terms
