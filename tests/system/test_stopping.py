"""A node that is stopped in full load: its primary hands over first, every process ends by itself,
nothing acknowledged is lost."""

import asyncio
import signal
from pathlib import Path

import psutil
import pytest

from appliance.drivers.chat.client import Client
from appliance.node.supervisor import STOP_S
from tests.patience import HUNG_S
from tests.ports import FreePorts
from tests.system.chat_load import Writer, unhurried
from tests.system.disk_history import histories
from tests.system.ledger import Ledger, check, read
from tests.system.local_site import NODES, LocalSite, ports_in_a_row, wait_until

WRITERS, ROOMS = 6, 4
IN_FULL_LOAD = 300  # messages that were acknowledged since writers hurry again
BACK_S = 60.0  # for a node to serve again
ENDS_S_MAX = 4.0  # from SIGTERM, for each process: who takes longer is killed, which the log tells


def stop_the_leader(site: LocalSite) -> int:
    """SIGTERM to the node whose replica leads; another one leads when that process has ended, which
    nobody had to miss before. The node that was stopped."""
    victim = site.leader()
    view = site.answer(victim)["view"]
    (replica,) = site.replicas(victim)
    supervisor = site.supervisors.pop(victim)
    supervisor.send_signal(signal.SIGTERM)
    psutil.wait_procs([replica], timeout=HUNG_S)
    others = [site.answer(node) for node in site.nodes if node != victim]
    led = [s for s in others if s["status"] == "normal" and s["role"] == "primary"]
    assert [s["view"] > view for s in led] == [True], f"view {view} was not handed over: {others}"
    assert supervisor.wait(HUNG_S) == 0
    assert not site.processes(victim)
    return victim


def start_again(site: LocalSite, node: int) -> None:
    site.start(node)
    wait_until(site.settled, BACK_S, lambda: f"node {node} is back: {site.statuses()}")


def stop_all(site: LocalSite) -> None:
    """SIGTERM to all nodes at once."""
    stopped = dict(site.supervisors)
    site.supervisors.clear()
    for supervisor in stopped.values():
        supervisor.send_signal(signal.SIGTERM)
    assert [supervisor.wait(HUNG_S) for supervisor in stopped.values()] == [0] * NODES
    assert not site.processes()


def hurry(ledger: Ledger) -> None:
    """Until writers who do have been told of some messages more."""
    wanted = ledger.counts["ok"] + IN_FULL_LOAD
    wait_until(lambda: ledger.counts["ok"] >= wanted, BACK_S, lambda: f"{ledger.counts} flow")


async def stop_in_full_load(site: LocalSite, ledger: Ledger, seed: int, rounds: int) -> None:
    """Writers take their time only while a node comes back: all that they write is judged. The last
    stop is that of the whole site, in the middle of their load."""
    access = site.access()
    async with Client(access.endpoints, access.token) as client:
        rooms = [(await client.create_room(f"room-{i}")).room_id for i in range(ROOMS)]
    writers = [Writer(number, access, ledger, seed) for number in range(WRITERS)]
    stop = asyncio.Event()
    writing = [asyncio.create_task(writer.write(rooms, stop)) for writer in writers]
    try:
        for _ in range(rounds):
            told = ledger.counts["ok"]
            victim = await asyncio.to_thread(stop_the_leader, site)
            assert ledger.counts["ok"] > told
            with unhurried(writers):
                await asyncio.to_thread(start_again, site, victim)
            await asyncio.to_thread(hurry, ledger)
            for task in writing:
                assert not task.done(), task.result()
        await asyncio.to_thread(stop_all, site)
    finally:
        for task in writing:
            task.cancel()
        await asyncio.gather(*writing, return_exceptions=True)


def stops_and_loses_nothing(folder: Path, free_ports: FreePorts, seed: int, rounds: int) -> None:
    ledger = Ledger(folder / "ledger.jsonl")
    with LocalSite(folder / "site", ports_in_a_row(free_ports), log_level="warning") as site:
        asyncio.run(stop_in_full_load(site, ledger, seed, rounds))
    ledger.close()
    log = (folder / "site.log").read_text(errors="replace")
    assert STOP_S <= ENDS_S_MAX
    assert "killed" not in log and "Traceback" not in log, log[-3000:]
    # A backup that cannot keep up in this load may be stopped while it lacks some operations.
    stored = histories(site, range(NODES), level=False)
    violations = check(read(folder / "ledger.jsonl"), stored)
    assert not violations, "\n".join(f"{v.kind}: {v.text}" for v in violations[:10])


def test_who_leads_hands_over_when_it_is_stopped_and_no_process_is_killed(
    tmp_path: Path, free_ports: FreePorts, seed: int
) -> None:
    stops_and_loses_nothing(tmp_path, free_ports, seed, 1)


@pytest.mark.soak
def test_thirty_stops_of_who_leads_kill_no_process(
    tmp_path: Path, free_ports: FreePorts, seed: int
) -> None:
    stops_and_loses_nothing(tmp_path, free_ports, seed, 30)
