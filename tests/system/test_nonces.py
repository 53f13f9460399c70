"""A replica never says anything twice under one number, however often it starts and whatever its
clock shows."""

from pathlib import Path

from tests.ports import FreePorts
from tests.system.faulty_disk_site import FaultyDiskSite
from tests.system.local_site import ports_in_a_row, wait_until

HOUR_S, YEAR_S = 3600, 365 * 86_400
CLOCKS = (0, -HOUR_S, -5 * YEAR_S, 0, HOUR_S, 0, -HOUR_S)  # how far off, in each life
NODE = 0


def said(site):
    """(incarnation, last nonce) of the replica that runs, once it has spoken to its peer."""

    def speaks():
        status = site.status(NODE)
        return status is not None and status["sent"].get("ping", 0) >= 2

    wait_until(speaks, 30, lambda: f"the replica speaks to its peer: {site.status(NODE)}")
    status = site.answer(NODE)
    return status["incarnation"], status["nonce"]


def test_nonces_of_seven_lives_never_meet_though_the_clock_is_set_back(
    tmp_path: Path, free_ports: FreePorts
) -> None:
    site = FaultyDiskSite(tmp_path / "site", ports_in_a_row(free_ports), nodes=2)
    lives = []
    with site:
        for clock in CLOCKS:
            site.set_clock(NODE, clock)
            site.roles[NODE, "replica"].kill()
            site.ended_with(NODE)
            site.start_role(NODE, "replica")
            incarnation, nonce = said(site)
            lives.append((incarnation << 32, nonce))
        block = next(r for r in site.inspect(NODE, "superblock") if r["kind"] == "superblock")
        assert block["incarnation"] == incarnation  # durable before anything was said
    assert len(lives) == len(CLOCKS)
    for (first, last), (next_first, _) in zip(lives, lives[1:], strict=False):
        assert first < last < next_first, lives
