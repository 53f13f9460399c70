"""Questions of a node's processes: answered as they are ready, told what is asked for, bounded."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from appliance.base.signature import SIGNATURE_SIZE
from appliance.drivers.network import questions as questions_module
from appliance.drivers.network.ask import Questions
from appliance.drivers.network.framing import Signer
from appliance.drivers.network.questions import Asker, QuestionServer
from appliance.formats.envelope import SENDER_CLIENT, decode
from appliance.formats.geometry import HEADER_SIZE
from appliance.formats.local import LOCAL_OBJECTS, number_of, question
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


def frame_of(number: int, body: bytes) -> bytes:
    header = question(LOCAL_OBJECTS, number, cluster=CLUSTER, shard=0, body=body)
    return bytes(Signer(sender=SENDER_CLIENT, key=None).frame(header, body))


def connected(folder: Path) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX)
    sock.settimeout(HUNG_S)
    sock.connect(str(folder / "objects"))
    return sock


def answers(sock: socket.socket, count: int) -> list[tuple[int, bytes]]:
    """Each with the number of its question."""
    found = []
    with sock.makefile("rb") as stream:
        for _ in range(count):
            header = decode(stream.read(HEADER_SIZE))
            assert header is not None
            found.append((number_of(header), stream.read(header.body_size)))
            stream.read(SIGNATURE_SIZE)
    return found


@pytest.mark.parametrize("questions_max", [1, 8])
def test_only_a_question_that_does_not_come_whole_costs_a_timer(
    tmp_path: Path, questions_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    timers: list[float] = []

    def ask(sock: socket.socket, pieces: list[bytes]) -> None:
        for piece in pieces:
            sock.sendall(piece)
            numbers = [number for number, _ in answers(sock, 2)]
            assert sorted(numbers) == [1, 2]

    async def run() -> list[int]:
        loop = asyncio.get_running_loop()
        call_at: Callable[..., asyncio.TimerHandle] = loop.call_at

        def counted(when: float, *given: Any, **named: Any) -> asyncio.TimerHandle:
            timers.append(when)
            return call_at(when, *given, **named)

        monkeypatch.setattr(loop, "call_at", counted)
        server = server_of(tmp_path, echo, questions_max)
        await server.start()
        whole = frame_of(1, b"") + frame_of(2, b"x" * 900)
        counts = [len(timers)]
        with connected(tmp_path) as sock:
            await asyncio.to_thread(ask, sock, [whole] * 20)
            counts.append(len(timers))
            sock.sendall(whole[:-1])
            assert await asyncio.to_thread(answers, sock, 1) == [(1, b"")]
            sock.sendall(whole[-1:])
            assert await asyncio.to_thread(answers, sock, 1) == [(2, b"x" * 900)]
            counts.append(len(timers))
        await server.close()
        return counts

    before, after_whole, after_half = asyncio.run(run())
    assert after_whole == before and after_half == before + 1


def test_questions_are_found_in_whatever_pieces_they_come(tmp_path: Path) -> None:
    asked = [(number, bytes([number]) * size) for number, size in enumerate((0, 1, 900, 1000), 1)]
    stream = b"".join(frame_of(number, body) for number, body in asked)

    def story() -> None:
        for size in (1, 7, HEADER_SIZE, HEADER_SIZE + 1, 700, len(stream)):
            with connected(tmp_path) as sock:
                for start in range(0, len(stream), size):
                    sock.sendall(stream[start : start + size])
                assert answers(sock, len(asked)) == asked

    async def run() -> None:
        server = server_of(tmp_path, echo, 1)
        await server.start()
        await asyncio.to_thread(story)
        await server.close()

    asyncio.run(run())


def test_half_a_question_ends_its_connection_in_time_and_silence_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(questions_module, "HANDSHAKE_MS_MAX", 50)

    def story() -> None:
        with connected(tmp_path) as silent:
            for said in (1, HEADER_SIZE, HEADER_SIZE + 3):
                with connected(tmp_path) as sock:
                    sock.sendall(frame_of(1, b"first") + frame_of(2, b"second")[:said])
                    assert answers(sock, 1) == [(1, b"first")]
                    assert sock.recv(1) == b""
            silent.sendall(frame_of(3, b"late"))
            assert answers(silent, 1) == [(3, b"late")]

    async def run() -> None:
        server = server_of(tmp_path, echo, 1)
        await server.start()
        await asyncio.to_thread(story)
        await server.close()

    asyncio.run(run())


def test_what_is_too_large_or_foreign_ends_the_connection_before_it_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(questions_module, "HANDSHAKE_MS_MAX", 10_000 * HUNG_S)  # not by that
    foreign = question(LOCAL_OBJECTS, 2, cluster=CLUSTER[::-1], shard=0, body=b"x")
    said = Signer(sender=SENDER_CLIENT, key=None).frame(foreign, b"x")

    def story() -> None:
        for refused in (frame_of(2, b"x" * 1001), bytes(said), b"\xff" * HEADER_SIZE):
            with connected(tmp_path) as sock:
                sock.sendall(frame_of(1, b"first") + refused[:HEADER_SIZE])
                assert answers(sock, 1) == [(1, b"first")]
                assert sock.recv(1) == b""

    async def run() -> None:
        server = server_of(tmp_path, echo, 1)
        await server.start()
        await asyncio.to_thread(story)
        await server.close()

    asyncio.run(run())


@pytest.mark.parametrize("questions_max", [1, 8])
def test_a_server_that_closes_beside_its_askers_tells_the_loop_of_no_error(
    tmp_path: Path, questions_max: int
) -> None:
    asked: list[bytes] = []

    async def answer(asker: Asker, body: bytes) -> bytes | None:
        asked.append(body)
        return await asyncio.get_running_loop().create_future()

    async def run() -> list[str]:
        told: list[str] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: told.append(str(context)))
        server = server_of(tmp_path, answer, questions_max)
        await server.start()
        with connected(tmp_path) as idle, connected(tmp_path) as half, connected(tmp_path) as waits:
            half.sendall(frame_of(1, b"half")[:-1])
            waits.sendall(frame_of(1, b"waits"))
            await until(lambda: asked == [b"waits"] and len(server.askers) == 3)
            await server.close()
            for sock in (idle, half, waits):
                assert sock.recv(1) == b""
        await asyncio.sleep(0)  # what is done when a task has ended
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return told

    assert asyncio.run(run()) == []
