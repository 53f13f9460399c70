"""Questions of a node's processes: answered as they are ready, told what is asked for, bounded."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from appliance.drivers.network.ask import Questions
from appliance.drivers.network.questions import Asker, QuestionServer
from appliance.formats.local import LOCAL_OBJECTS
from tests.patience import HUNG_S, within

CLUSTER = bytes(range(16))
WAITING_SIZE_MAX = 1 << 20


def server_of(
    folder: Path, answer: Callable[[Asker, bytes], Awaitable[bytes | None]], questions_max: int
) -> QuestionServer:
    return QuestionServer(
        folder / "objects",
        answer,
        command=LOCAL_OBJECTS,
        cluster=CLUSTER,
        number=0,
        question_size_max=1000,
        connections_max=3,
        questions_max=questions_max,
        waiting_size_max=WAITING_SIZE_MAX,
    )


def questions(folder: Path) -> Questions:
    return Questions(folder, "objects", cluster=CLUSTER, timeout_s=HUNG_S)


async def echo(asker: Asker, body: bytes) -> bytes | None:
    asker.follows = body == b"follow"
    return None if body == b"nonsense" else body


async def until(holds: Callable[[], bool]) -> None:
    async with within(HUNG_S):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


def test_who_follows_and_takes_nothing_is_sent_away_and_the_others_miss_nothing(
    tmp_path: Path,
) -> None:
    told = [bytes([number]) * 65_536 for number in range(100)]
    heard: list[bytes] = []

    def follow() -> None:
        with questions(tmp_path) as asking:
            asking.ask(LOCAL_OBJECTS, b"follow")
            heard.extend(asking.told(LOCAL_OBJECTS) for _ in told)

    async def run() -> None:
        server = server_of(tmp_path, echo, 8)
        await server.start()
        with questions(tmp_path) as slow, questions(tmp_path) as silent:
            await asyncio.to_thread(slow.ask, LOCAL_OBJECTS, b"follow")
            await asyncio.to_thread(silent.ask, LOCAL_OBJECTS, b"only asks")
            following = asyncio.create_task(asyncio.to_thread(follow))
            await until(lambda: sum(asker.follows for asker in server.askers) == 2)
            sent_away = 0
            for number, body in enumerate(told):
                sent_away += server.tell(body)
                await until(lambda n=number: len(heard) > n)  # who takes it is never too slow
            await following
            assert sent_away == 1
            await until(lambda: not any(asker.follows for asker in server.askers))
            assert await asyncio.to_thread(silent.ask, LOCAL_OBJECTS, b"goes on") == b"goes on"
        await server.close()

    asyncio.run(run())
    assert heard == told


def test_a_question_that_takes_long_holds_back_nobody_else(
    tmp_path: Path,
) -> None:
    begun: list[bytes] = []
    go_on = asyncio.Event()

    async def answer(asker: Asker, body: bytes) -> bytes | None:
        begun.append(body)
        if body == b"long":
            await go_on.wait()
        return body

    async def run() -> None:
        server = server_of(tmp_path, answer, 2)
        await server.start()
        with questions(tmp_path) as one, questions(tmp_path) as other:
            long = asyncio.create_task(asyncio.to_thread(one.ask, LOCAL_OBJECTS, b"long"))
            await until(lambda: begun == [b"long"])
            assert await asyncio.to_thread(other.ask, LOCAL_OBJECTS, b"short") == b"short"
            go_on.set()
            assert await long == b"long"
        await server.close()

    asyncio.run(run())


def test_nonsense_too_many_askers_and_too_large_a_question_end_a_connection(
    tmp_path: Path,
) -> None:
    def ends(body: bytes) -> bool:
        try:
            with questions(tmp_path) as asking:
                asking.ask(LOCAL_OBJECTS, body)
        except ConnectionError:
            return True
        return False

    def story() -> None:
        assert ends(b"nonsense") and ends(b"x" * 1001) and not ends(b"x" * 1000)
        with questions(tmp_path) as a, questions(tmp_path) as b, questions(tmp_path) as c:
            for asking in (a, b, c):
                asking.ask(LOCAL_OBJECTS, b"here")
            assert ends(b"one too many")

    async def run() -> None:
        for questions_max in (1, 8):
            server = server_of(tmp_path, echo, questions_max)
            await server.start()
            await asyncio.to_thread(story)
            await server.close()

    asyncio.run(run())
