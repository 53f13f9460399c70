"""Together with the other implementation of Scalable Data Sync: bytes, and whole channels."""

import asyncio
import json
import subprocess
import time
from typing import Any

import pytest

from appliance.formats.causal import message as sds
from appliance.formats.causal.bloom import DEFAULT_GEOMETRY, BloomFilter, Geometry
from appliance.formats.causal.message import HistoryEntry, Message
from tests.formats.causal.test_message import VECTORS
from tests.interoperability.bearer import TICK_MS, Bearer, Process, ours, theirs
from tests.interoperability.modules import MODULES, NODE, SCRIPTS
from tests.patience import HUNG_S

MESSAGES = 24
SEND_PAUSE_S = 0.02
SEEDS = (1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in (2, 3)))


def other(asked: dict[str, Any]) -> dict[str, Any]:
    done = subprocess.run(
        [NODE, SCRIPTS / "vectors.mjs", MODULES],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return json.loads(done.stdout)


def hexed(data: bytes | None) -> str | None:
    return None if data is None else data.hex()


def plain(message: Message) -> dict[str, Any]:
    def entries(found: tuple[HistoryEntry, ...]) -> list[dict[str, Any]]:
        return [
            {"id": e.message_id, "hint": hexed(e.retrieval_hint), "sender": e.sender_id}
            for e in found
        ]

    return {
        "sender": message.sender_id,
        "id": message.message_id,
        "channel": message.channel_id,
        "lamport": message.lamport,
        "history": entries(message.causal_history),
        "filter": hexed(message.bloom_filter),
        "requests": entries(message.repair_requests),
        "content": hexed(message.content),
    }


def test_both_make_and_read_the_same_messages() -> None:
    messages = [message for message, _ in VECTORS.values()]
    told = other(
        {
            "encode": [plain(message) for message in messages],
            "decode": [sds.encode(message).hex() for message in messages],
            "filters": [],
        }
    )
    assert told["encoded"] == [sds.encode(message).hex() for message in messages]
    assert told["decoded"] == [plain(message) for message in messages]
    assert [sds.decode(bytes.fromhex(data)) for data in told["encoded"]] == messages


@pytest.mark.parametrize("geometry", [Geometry(10, 0.001), Geometry(10, 0.01), DEFAULT_GEOMETRY])
def test_both_make_and_read_the_same_filters(geometry: Geometry) -> None:
    ids = ["m1", "m2", "m3", *(f"id-{i}" for i in range(min(geometry.capacity - 3, 500)))]
    made = BloomFilter(geometry)
    for message_id in ids:
        made.insert(message_id)
    facts = {"capacity": geometry.capacity, "rate": geometry.error_rate}
    probes = [*ids, *(f"no-{i}" for i in range(500))]
    told = other(
        {
            "encode": [],
            "decode": [],
            "filters": [
                {**facts, "ids": ids},
                {**facts, "ids": probes, "data": bytes(made).hex()},
            ],
        }
    )
    assert told["filters"][0] == bytes(made).hex()
    assert told["filters"][1] == [probe in made for probe in probes]


async def channel_of(names: dict[str, list[str]], seed: int, store: str | None) -> None:
    """Everybody writes, over a bearer that loses; afterwards all logs are equal."""
    processes = [Process(name) for name in names]
    started: list[Process] = []
    try:
        for process in processes:
            await process.start(names[process.name])
            started.append(process)
            await process.ask("stats")
        bearer = Bearer(processes, seed)
        helping = asyncio.create_task(serve(processes, store)) if store else None
        for number in range(MESSAGES):
            process = processes[bearer.random.randrange(len(processes))]
            await process.ask("send", text=f"{process.name} says {number}")
            await asyncio.sleep(SEND_PAUSE_S)
        await equal(processes)
        if helping is not None:
            helping.cancel()
        assert bearer.lost > MESSAGES // 5
        for process in processes:
            assert not process.errors
            assert (await process.ask("stats"))["stats"].get("errors", 0) == 0
    finally:
        for process in started:
            await process.stop()


async def equal(processes: list[Process]) -> None:
    end = time.monotonic() + HUNG_S
    while True:
        logs = [await process.log() for process in processes]
        if all(log == logs[0] and len(log) == MESSAGES for log in logs):
            assert len({content for _, _, content in logs[0]}) == MESSAGES
            return
        assert time.monotonic() < end, [
            (p.name, len(log)) for p, log in zip(processes, logs, strict=True)
        ]
        await asyncio.sleep(0.2)


async def serve(processes: list[Process], store: str) -> None:
    """What one of the other kind misses is asked of ours, as of a store, and comes without loss."""
    named = {process.name: process for process in processes}
    asked: dict[str, set[str]] = {}
    for process in processes:
        if process.name != store:
            process.on_event = lambda event, name=process.name: asked.setdefault(
                name, set()
            ).update(event["ids"] if event["event"] == "missing" else ())
    while True:
        await asyncio.sleep(TICK_MS / 1000)
        for name, ids in list(asked.items()):
            asked[name] = set()
            held = await retrieved(named[store], sorted(ids)[:64]) if ids else []
            for data in held:
                named[name].hear(data)


async def retrieved(store: Process, ids: list[str]) -> list[bytes]:
    messages = (await store.ask("retrieve", ids=ids))["messages"]
    return [bytes.fromhex(data) for data in messages]


@pytest.mark.soak
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_two_participants_ours_and_theirs_end_with_equal_logs(seed: int) -> None:
    names = {"ours": ours("ours", seed), "theirs": theirs("theirs")}
    asyncio.run(channel_of(names, seed, store=None))


@pytest.mark.parametrize("seed", SEEDS)
def test_three_participants_with_ours_as_store_end_with_equal_logs(seed: int) -> None:
    names = {"ours": ours("ours", seed), "first": theirs("first"), "second": theirs("second")}
    asyncio.run(channel_of(names, seed, store="ours"))
