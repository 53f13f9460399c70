"""Participants that are killed again and again, over a bearer that loses a third: nothing that was
answered is lost, nothing is doubled, and in the end everybody has the same.
"""

import asyncio
import json
import random
import time
from pathlib import Path

import pytest

from appliance.roles.federation.participant import COMMAND, frame
from tests.interoperability.bearer import Bearer, Process, ours
from tests.patience import HUNG_S

KILLS = (2, pytest.param(10, marks=pytest.mark.soak))
SENDS_BETWEEN, SITES = 6, 3


async def end(process: Process) -> None:
    process.process.kill()
    await process.process.wait()
    await process.reading


async def story(folder: Path, kills: int, seed: int) -> None:
    chance = random.Random(seed)
    processes = [Process(f"site-{number}") for number in range(SITES)]
    commands = {
        process.name: [*ours(process.name, seed), "--folder", str(folder / process.name)]
        for process in processes
    }
    for process in processes:
        await process.start(commands[process.name])
    bearer = Bearer(processes, seed)
    answered: dict[str, str] = {}  # id -> text
    texts: set[str] = set()
    try:
        for kill in range(kills):
            for number in range(SENDS_BETWEEN):
                text = f"{kill}.{number}"
                texts.add(text)
                told = await processes[chance.randrange(SITES)].ask("send", text=text)
                answered[told["message_id"]] = text
            victim = processes[kill % SITES]
            text = f"{kill}.last"
            texts.add(text)
            body = json.dumps({"command": "send", "id": 0, "text": text}).encode()
            victim.replies[0] = asyncio.get_running_loop().create_future()
            victim.process.stdin.write(frame(COMMAND, body))
            await asyncio.sleep(chance.random() * 0.05)
            await end(victim)
            await victim.start(commands[victim.name])
        await until_equal(processes, answered, texts)
        assert bearer.lost > 2 * kills
    finally:
        for process in processes:
            await process.stop()


async def until_equal(processes: list[Process], answered: dict[str, str], texts: set[str]) -> None:
    deadline = time.monotonic() + HUNG_S
    while True:
        logs = [await process.log() for process in processes]
        stats = [(await process.ask("stats"))["stats"] for process in processes]
        quiet = not any(s[name] for s in stats for name in ("outgoing", "waiting", "ready"))
        if quiet and all(log == logs[0] for log in logs):
            break
        assert time.monotonic() < deadline, [len(log) for log in logs]
        await asyncio.sleep(0.3)
    found = {message_id: content.decode() for _, message_id, content in logs[0]}
    assert answered.items() <= found.items()
    assert sorted(found.values()) == sorted(set(found.values())), "one is doubled"
    assert set(found.values()) <= texts
    assert logs[0] == sorted(logs[0])


@pytest.mark.parametrize("kills", KILLS)
def test_kills_lose_and_double_nothing(kills: int, tmp_path: Path) -> None:
    asyncio.run(story(tmp_path, kills, seed=20261124))
