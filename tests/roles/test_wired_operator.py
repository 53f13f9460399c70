"""What is asked of a group under a session that others push out of its table: it is asked anew
where that is safe, and said to be uncertain where it is not."""

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncIterator
from typing import Any

import pytest

from appliance.base.errors import StorageError
from appliance.drivers.host.node_folder import NodeFolder, open_node
from appliance.formats import record
from appliance.formats.envelope import OPERATION_APPEND, OPERATION_NOOP
from appliance.formats.geometry import SMALL
from appliance.formats.session import DUPLICATE, OK, RESULT_STRUCT, SEQUENCE_GAP
from appliance.roles.farm.audit import AuditTrail
from appliance.roles.keeper import KeeperRole
from appliance.roles.operator import trail
from appliance.roles.operator.session import OperatorSession
from tests.patience import HUNG_S
from tests.roles.conftest import MakeSite
from tests.roles.wired_site import WiredSite, until

LOG = logging.getLogger("tigerchat.wired")


async def serving(site: WiredSite) -> NodeFolder:
    """The node of a replica that serves."""
    role = await site.start_replica(0)
    await until(lambda: role.status().status == "normal")
    return open_node(site.node(0))


async def push_out(node: NodeFolder) -> None:
    """Every session that there is gives way."""
    for _ in range(SMALL.clients_max):
        async with OperatorSession(node, node.site.shards[0]) as other:
            await other.ask(OPERATION_NOOP, b"", HUNG_S, "nothing")


@contextlib.asynccontextmanager
async def pushed_out(node: NodeFolder) -> AsyncIterator[OperatorSession]:
    """A session that was asked something, and whose place is another's now."""
    async with OperatorSession(node, node.site.shards[0]) as session:
        await session.ask(OPERATION_NOOP, b"", HUNG_S, "nothing")
        await push_out(node)
        yield session


def note(name: bytes, client_id: bytes) -> bytes:
    """The first record of a device of the shard itself."""
    return record.encode(
        room_id=record.SHARD_ROOM_ID, msg_id=os.urandom(16), author_id=0, body=name,
        client_id=client_id, client_seq=1, kind=record.KIND_AUDIT,
    )  # fmt: skip


def test_what_a_lost_session_asks_is_answered_under_the_next_one_and_done_once(
    make_site: MakeSite,
) -> None:
    async def story(site: WiredSite) -> None:
        node = await serving(site)
        raw = note(b"an act", os.urandom(16))
        codes = []
        async with pushed_out(node) as session:
            for _ in range(2):
                answer = await session.ask(OPERATION_APPEND, raw, HUNG_S, "an act", records=1)
                codes.append(RESULT_STRUCT.unpack_from(answer)[3])
                await push_out(node)
        assert codes == [OK, DUPLICATE]

    make_site(1).run(story)


def test_what_must_not_be_done_twice_is_said_to_be_uncertain_at_once(make_site: MakeSite) -> None:
    async def story(site: WiredSite) -> None:
        node = await serving(site)
        async with pushed_out(node) as session:
            with pytest.raises(StorageError, match="the change .* may have been done; look"):
                async with asyncio.timeout(HUNG_S):
                    await session.ask(OPERATION_NOOP, b"", 10 * HUNG_S, "the change", again=False)
            assert await session.ask(OPERATION_NOOP, b"", HUNG_S, "the next", again=False) == b""

    make_site(1).run(story)


def test_what_no_primary_will_ever_take_is_refused_with_its_reason(make_site: MakeSite) -> None:
    async def story(site: WiredSite) -> None:
        node = await serving(site)
        before = site.replicas[0].status().counters
        async with OperatorSession(node, node.site.shards[0]) as session:
            with pytest.raises(StorageError, match=r"\(invalid_body_size\).*update the older"):
                await session.ask(OPERATION_NOOP, b"too long", HUNG_S, "nothing")
        after = site.replicas[0].status().counters
        assert after["evicted_invalid_body_size"] == before.get("evicted_invalid_body_size", 0) + 1

    make_site(1).run(story)


# --- records of a role's own ----------------------------------------------------------------------


@pytest.fixture
def lost(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The answer to the first record is lost; the codes of all answers."""
    codes: list[int] = []
    ask = OperatorSession.ask

    async def ask_and_lose(self: OperatorSession, *of: Any, **named: Any) -> bytes:
        answer = await ask(self, *of, **named)
        codes.append(RESULT_STRUCT.unpack_from(answer)[3])
        if len(codes) == 1:
            raise StorageError("the answer was lost")
        return answer

    monkeypatch.setattr(OperatorSession, "ask", ask_and_lose)
    return codes


def test_a_keeper_goes_on_after_an_answer_that_was_lost_or_a_window_that_is_gone(
    make_site: MakeSite, lost: list[int]
) -> None:
    async def story(site: WiredSite) -> None:
        node = await serving(site)
        shard = node.site.shards[0]
        keeper = KeeperRole(node, LOG)

        async def retain() -> int:
            return await keeper._retain(shard, 0, ships=False, push=0)

        with pytest.raises(StorageError, match="was lost"):
            await retain()
        assert [await retain() for _ in range(3)] == [DUPLICATE, OK, OK]
        async with OperatorSession(node, shard) as session:
            for number in range(SMALL.windows_max):
                raw = note(b"%d" % number, os.urandom(16))
                await session.ask(OPERATION_APPEND, raw, HUNG_S, "another device", records=1)
        assert [await retain() for _ in range(3)] == [SEQUENCE_GAP, OK, OK]

    make_site(1).run(story)


def test_acts_are_noted_once_each_though_an_answer_was_lost(
    make_site: MakeSite, lost: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trail, "PAUSE_S", 0.01)

    async def story(site: WiredSite) -> None:
        node = await serving(site)
        before = site.replicas[0].status().log_seq
        acts = AuditTrail(node, "farm", LOG)
        for number in range(3):
            acts.note({"do": "place", "shard": number}, "")
        task = asyncio.create_task(acts.run())
        await until(lambda: acts.told().written == 3)
        task.cancel()
        assert lost == [OK, DUPLICATE, OK, OK]
        assert site.replicas[0].status().log_seq == before + 3

    make_site(1).run(story)
