"""The status socket: questions are answered, anything else ends the connection."""

import asyncio
import gc
import json
import os
import resource
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from appliance.base.errors import ConfigurationError
from appliance.base.prng import Prng
from appliance.base.signature import SIGNATURE_SIZE
from appliance.drivers.network.ask import ask_status, listens
from appliance.drivers.network.framing import Signer
from appliance.drivers.network.status import StatusServer
from appliance.formats.envelope import PING, SENDER_CLIENT, decode, make
from appliance.formats.geometry import HEADER_SIZE
from appliance.formats.local import LOCAL_STATUS, number_of
from tests.patience import HUNG_S

CLUSTER = bytes(range(16))


def serving(tmp_path: Path, story: Callable[[Path], object]) -> object:
    """What `story` gives, told in a thread beside a server at tmp_path/edge-0."""

    async def run() -> object:
        path = tmp_path / "edge-0"
        server = StatusServer(path, cluster=CLUSTER, number=0, status=lambda: {"acked": 7})
        await server.start()
        try:
            return await asyncio.to_thread(story, path)
        finally:
            await server.close()
            assert not path.exists()

    return asyncio.run(run())


def question(**changes: object) -> bytes:
    header = make(**({"command": LOCAL_STATUS, "cluster": CLUSTER, "shard": 0} | changes))
    return bytes(Signer(sender=SENDER_CLIENT, key=None).frame(header, b""))


def asked(path: Path) -> object:
    """What is answered, however long that takes."""
    return ask_status(path.parent, cluster=CLUSTER, shard=0, kind="edge", timeout_s=HUNG_S)


def connected(path: Path) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX)
    sock.connect(str(path))  # waits its turn
    sock.settimeout(HUNG_S)
    return sock


def test_the_asker_gets_what_the_process_says(tmp_path: Path) -> None:
    def story(path: Path) -> object:
        return asked(path)

    assert serving(tmp_path, story) == {"acked": 7}


def test_one_connection_may_ask_again(tmp_path: Path) -> None:
    def story(path: Path) -> object:
        answers = []
        with connected(path) as sock, sock.makefile("rb") as stream:
            for number in (7, 5, 0):
                sock.sendall(question(commit_num=number))
                header = decode(stream.read(HEADER_SIZE))
                assert number_of(header) == number
                answers.append(json.loads(stream.read(header.body_size)))
                stream.read(SIGNATURE_SIZE)
        return answers

    assert serving(tmp_path, story) == [{"acked": 7}] * 3


@pytest.mark.parametrize(
    ("number", "heard"), [(0, {"x": 1}), (1, {"x": 1}), (2, None)], ids=["earlier", "own", "none"]
)
def test_only_an_answer_to_the_question_is_one(
    tmp_path: Path, number: int, heard: dict[str, int] | None
) -> None:
    """Processes of earlier versions give it no number."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(HEADER_SIZE + SIGNATURE_SIZE)
        body = b'{"x": 1}'
        header = make(LOCAL_STATUS, cluster=CLUSTER, shard=0, commit_num=number, body=body)
        writer.write(Signer(sender=SENDER_CLIENT, key=None).frame(header, body))
        writer.close()

    async def run() -> None:
        async with await asyncio.start_unix_server(serve, tmp_path / "edge-0"):
            assert await asyncio.to_thread(asked, tmp_path / "edge-0") == heard

    asyncio.run(run())


@pytest.mark.parametrize(
    "said",
    [
        question(command=PING),
        question(cluster=bytes(16)),
        question(shard=1),
        b"GET / HTTP/1.1\r\n" + bytes(200),
        b"\xff" * 192,
    ],
    ids=lambda said: said[6:12].hex(),
)
def test_anything_else_ends_the_connection(tmp_path: Path, said: bytes) -> None:
    def story(path: Path) -> object:
        with connected(path) as sock:
            sock.sendall(said)
            return sock.recv(1)

    assert serving(tmp_path, story) == b""


def test_random_bytes_end_connections_and_the_next_asker_is_answered(
    tmp_path: Path, seed: int
) -> None:
    def story(path: Path) -> object:
        prng = Prng(seed)
        for _ in range(200):
            with connected(path) as sock:
                sock.sendall(prng.bytes(prng.between(1, 400)))
        return asked(path)

    assert serving(tmp_path, story) == {"acked": 7}


def test_nobody_there_is_no_answer(tmp_path: Path) -> None:
    assert ask_status(tmp_path, cluster=CLUSTER, shard=0) is None
    assert ask_status(tmp_path / "missing", cluster=CLUSTER, shard=0) is None


def test_who_is_there_is_seen_without_an_answer_and_nothing_stays_open(tmp_path: Path) -> None:
    place = tmp_path / ("x" * 100) / "sockets"  # longer than the name of a socket may be
    place.mkdir(parents=True)
    opened = len(os.listdir("/proc/self/fd"))
    here = os.open(place, os.O_PATH)
    with socket.socket(socket.AF_UNIX) as stuck, socket.socket(socket.AF_UNIX) as dead:
        for sock, name in ((stuck, "edge-0"), (dead, "edge-1")):
            sock.bind(f"/proc/self/fd/{here}/{name}")
        stuck.listen(1)
        (place / "edge-2").write_bytes(b"")
        for _ in range(10):  # more than it lets in
            assert listens(place, kind="edge")
        found = [listens(place, kind="edge", number=number) for number in (1, 2, 3)]
        assert found == [False, False, False]
        assert not listens(tmp_path / "missing", kind="edge")
        assert not listens(place / "edge-2", kind="edge"), "no folder"
        few = {"cluster": CLUSTER, "shard": 0, "kind": "edge", "timeout_s": 0.01}
        assert ask_status(place, **few) is None
        most = resource.getrlimit(resource.RLIMIT_NOFILE)
        for left in (0, 1):  # one for the folder, none for the socket
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit_that_leaves(left), most[1]))
            try:
                assert not listens(place, kind="edge")
                assert ask_status(place, **few) is None
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, most)
    os.close(here)
    assert len(os.listdir("/proc/self/fd")) == opened


def limit_that_leaves(left: int) -> int:
    """A limit of descriptors that leaves so many: the lowest that are free are taken first."""
    free = [os.dup(0) for _ in range(left + 1)]
    for number in free:
        os.close(number)
    return free[-1]


def test_what_a_dead_process_left_is_replaced(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / "edge-0"))
    answer = serving(tmp_path, lambda path: asked(path))
    assert answer == {"acked": 7}


def test_after_the_end_of_a_server_nothing_of_it_runs(tmp_path: Path) -> None:
    """A task that is pending when the loop closes is told of as destroyed."""

    async def run() -> None:
        path = tmp_path / "edge-0"
        server = StatusServer(path, cluster=CLUSTER, number=0, status=dict)
        await server.start()
        with connected(path) as idle, connected(path) as half, connected(path) as gone:
            half.sendall(question()[:50])
            gone.close()
            while len(server.askers) < 2 or len(asyncio.all_tasks()) > 3:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            await server.close()
            assert asyncio.all_tasks() == {asyncio.current_task()} and not server.askers
            assert idle.recv(1) == half.recv(1) == b""

    asyncio.run(run())


def test_a_socket_that_cannot_be_made_is_explained(tmp_path: Path) -> None:
    async def run() -> None:
        await StatusServer(
            tmp_path / "missing" / "edge-0", cluster=CLUSTER, number=0, status=dict
        ).start()

    with pytest.raises(ConfigurationError, match="cannot be made"):
        asyncio.run(run())


def test_who_goes_before_the_answer_leaves_no_error_that_nobody_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """asyncio's own remedy for it depends on the order in which a connection is collected."""
    monkeypatch.delattr(asyncio.StreamReaderProtocol, "__del__")

    async def run() -> list[str]:
        lost: list[str] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: lost.append(str(context)))
        path = tmp_path / "edge-0"
        server = StatusServer(path, cluster=CLUSTER, number=0, status=lambda: {"x": "y" * 300_000})
        await server.start()
        for _ in range(5):
            with connected(path) as sock:
                sock.sendall(question())
            await asyncio.sleep(0.02)
        await server.close()
        await asyncio.sleep(0)
        gc.collect()
        return lost

    assert asyncio.run(run()) == []
