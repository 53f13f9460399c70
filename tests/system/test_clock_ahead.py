"""A clock that was ahead once: told at once, shipped all the same, and brought back by one act."""

import asyncio
import json
import os
import time
from pathlib import Path

import pytest

from appliance.base.errors import StorageError
from appliance.drivers.host.node_folder import read_node
from appliance.roles.operator.clock_correcting import correct_to
from tests.patience import HUNG_S
from tests.ports import FreePorts
from tests.system.faulty_disk_site import FAKETIME
from tests.system.local_site import LocalSite, ports_in_a_row, run, wait_until

AHEAD_DAYS = 400
DAY_S = 86_400


class AheadSite(LocalSite):
    """One node, whose replica has a clock of its own at first."""

    log_was_made = False

    def start_role(self, node: int, role: str, **variables: str) -> None:
        if role == "replica" and not self.log_was_made:
            faketime = FAKETIME.format(machine=os.uname().machine)
            assert Path(faketime).exists(), f"{faketime} is missing: apt-get install faketime"
            variables = {
                "LD_PRELOAD": faketime,
                "FAKETIME": f"+{AHEAD_DAYS}d",
                "FAKETIME_DONT_FAKE_MONOTONIC": "1",
                "FAKETIME_FORCE_MONOTONIC_FIX": "0",
            }
        super().start_role(node, role, **variables)


def alarm_of(place: list[str]) -> str:
    said = run("status", *place).stdout
    return next((line for line in said.splitlines() if line.startswith("log_ahead")), "")


def times(place: list[str]) -> list[int]:
    """Of the room's messages, in µs, in the order of the log."""
    done = run("tail", "general", "--last", "20", "--no-follow", "--json", *place)
    assert done.returncode == 0, done.stderr
    return [json.loads(line)["timestamp"] for line in done.stdout.splitlines()]


def test_a_node_that_was_400_days_ahead_ships_and_is_brought_back(
    tmp_path: Path, free_ports: FreePorts
) -> None:
    first = ports_in_a_row(free_ports)
    with AheadSite(
        tmp_path / "site", first, nodes=1, supervised=False, ship_target="folder"
    ) as site:
        place = ["--local", str(site.folder)]
        run("room", "create", "general", *place)
        for text in ("one", "two", "three"):
            assert run("send", "general", text, *place).returncode == 0
        site.stop()
        site.log_was_made = True
        site.start()
        site.start_role(0, "shipper")
        site.wait_serving()
        assert "log time is 399 d 23 h ahead of this clock" in alarm_of(place)
        assert run("send", "general", "four", *place).returncode == 0
        wait_until(
            lambda: run("ship", "now", "--close", *place).returncode == 0, HUNG_S, "it ships"
        )
        node, far_us = read_node(site.folder / "node-0"), (int(time.time()) - 2 * DAY_S) * 1_000_000
        with pytest.raises(StorageError, match="more than 5 minutes apart"):
            asyncio.run(correct_to(node, node.shards[0], far_us))
        done = run("clock", "correct", "--yes", *place)
        assert done.returncode == 0, done.stderr
        assert "brings log time back by 399 d 23 h" in done.stdout
        assert alarm_of(place) == ""
        assert run("send", "general", "five", *place).returncode == 0
        *before, four, five = times(place)
        assert before == sorted(before)
        assert before[-1] < four
        assert (AHEAD_DAYS - 1) * DAY_S < (four - five) / 1e6 < AHEAD_DAYS * DAY_S
        assert "not ahead" in run("clock", "correct", "--yes", *place).stdout
        wait_until(
            lambda: run("ship", "now", "--close", *place).returncode == 0, HUNG_S, "it ships on"
        )
        done = run("ship", "verify", *place)
        assert done.returncode == 0, done.stdout
