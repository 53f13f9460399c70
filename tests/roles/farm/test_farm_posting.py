"""What is posted: whose it may be, when it was appended, and how a poster hears why not."""

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from appliance.base.errors import FarmPostRefused
from appliance.cores.directory.directory import AHEAD_MS, canonical
from appliance.cores.directory.document import parse_document
from appliance.cores.directory.log_time import append_time, append_time_of
from appliance.cores.raft.login import FEATURE_PRE_VOTE, FEATURES
from appliance.formats.raft_legacy.frame import (
    APPLICATION,
    CLIENT_REQUEST,
    RESPONSE_SIZE,
    Entry,
    Request,
    encode_request,
)
from appliance.formats.raft_legacy.refusal import POSTER_NOT_ID
from tests.patience import HUNG_S
from tests.roles.farm.inside import Inside, inside


def now_ms() -> int:
    return int(time.time() * 1000)


def status(member: int, date_ms: int, farm: str = "farm") -> bytes:
    return canonical({"cluster": farm, "date": date_ms, "id": member, "meta": {}})


def go(folder: Path, port: int, story, **options: Any) -> None:
    async def run() -> None:
        async with inside(folder, port, **options) as farm:
            await story(farm)

    asyncio.run(run())


async def post(farm: Inside, who: str, *values: bytes) -> None:
    client = farm.client(who)
    try:
        await client.post(values, HUNG_S)
    finally:
        await client.close()


async def refused(farm: Inside, who: str, value: bytes) -> str:
    """The word of a refusal, which comes at once."""
    before = farm.member.node.status().last
    with pytest.raises(FarmPostRefused) as raised:
        await post(farm, who, value)
    assert farm.count(raised.value.reason) > 0
    assert farm.member.node.status().last == before, "nothing was stored"
    assert "the farm refuses it: " in str(raised.value)
    return raised.value.reason


def test_who_leads_puts_the_time_before_each_document_and_changes_no_value(
    tmp_path: Path, free_port: int
) -> None:
    async def story(farm: Inside) -> None:
        began_ms = now_ms()
        values = [status(2, began_ms), b'{"hello":1}', b"no json"]
        await post(farm, "node2", *values)
        entries = farm.member.node.member.log.entries
        told, *rest = [entry.value for entry in entries[-4:]]
        assert rest == values
        document = parse_document(told)
        assert document is not None
        told_ms = append_time_of(document)
        assert told_ms is not None and began_ms <= told_ms <= now_ms()
        directory = farm.member.directory
        assert directory.time.told_ms == told_ms and directory.documents[2].value == values[0]

    go(tmp_path, free_port, story)


def test_a_date_that_no_clock_could_have_is_refused_and_silences_nobody(
    tmp_path: Path, free_port: int
) -> None:
    async def story(farm: Inside) -> None:
        date_ms = now_ms()
        assert await refused(farm, "node2", status(2, 1 << 53)) == "date_impossible"
        assert await refused(farm, "node2", status(2, -1)) == "date_impossible"
        await post(farm, "node1", status(1, date_ms))
        ahead_ms = now_ms() + AHEAD_MS + 60_000
        assert await refused(farm, "node2", status(2, ahead_ms)) == "date_impossible"
        await post(farm, "node2", status(2, date_ms + 3_600_000))
        assert set(farm.member.directory.documents) == {1, 2}

    go(tmp_path, free_port, story)


def test_nobody_else_puts_a_time_into_the_log(tmp_path: Path, free_port: int) -> None:
    async def story(farm: Inside) -> None:
        word = canonical(append_time("farm", 1, now_ms()))
        assert await refused(farm, "gateway", word) == "append_time_posted"

    go(tmp_path, free_port, story)


def test_why_is_told_only_to_who_said_that_it_understands(tmp_path: Path, free_port: int) -> None:
    """The last byte of an answer is 1 for yes; JRaft takes all else for no, and so do we."""

    async def story(farm: Inside) -> None:
        entry = Entry(0, APPLICATION, status(1, now_ms()))
        request = Request(CLIENT_REQUEST, entries=(entry,))
        (gate,) = farm.door.doorway.gates.values()
        last = []
        for features in ((FEATURE_PRE_VOTE,), FEATURES):
            gate.features = features
            async with farm.visit("node2") as (reader, writer):
                writer.write(encode_request(request))
                last.append((await reader.readexactly(RESPONSE_SIZE))[-1])
        assert last == [0, POSTER_NOT_ID]

    go(tmp_path, free_port, story)
