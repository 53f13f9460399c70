"""What a NameNode, a gateway or nobody may answer to the reports: told by name, never believed."""

from collections.abc import Callable, Iterator
from io import BytesIO
from typing import Any

import pytest

from appliance.base.errors import StorageError
from appliance.formats import webhdfs as format_
from appliance.formats.webhdfs_call import Login, Patience
from appliance.reports import webhdfs
from appliance.reports.webhdfs import Hdfs
from tests.name_node import Server, name_node
from tests.ports import FreePorts

MISSING = {"RemoteException": {"exception": "FileNotFoundException", "message": "none"}}
ROW = {"pathSuffix": "x", "type": "FILE", "length": 5, "modificationTime": 1}
WORDS = b"words"
TRIES_MAX = webhdfs.PATIENCE.tries_max


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(webhdfs, "PATIENCE", Patience(TRIES_MAX, 1, 1))
    with name_node() as found:
        found.says["GETFILESTATUS"] = (200, {"FileStatus": ROW}, None)
        found.says["OPEN"] = (307, b"", f"{found.url}/data?op=READ&delegation=secret")
        found.says["CREATE"] = (307, b"", f"{found.url}/data?op=WRITE")
        found.says["READ"] = (200, WORDS, None)
        found.says["WRITE"] = (201, b"", None)
        yield found


def asking(server: Server) -> Hdfs:
    return Hdfs(f"127.0.0.1:{server.server_port}", False, Login(user="u"))


def opened(client: Hdfs) -> bytes:
    with client.open("/a", 0, 1 << 20) as stream:
        return stream.read()


def filled(client: Hdfs) -> bytes:
    """As `opened`, as readers of columns do it."""
    buffer, got = memoryview(bytearray(100)), 0
    with client.open("/a", 0, 1 << 20) as stream:
        while count := stream.readinto(buffer[got:]):  # type: ignore[attr-defined]
            got += count
    return bytes(buffer[:got])


CALLS: dict[str, Callable[[Hdfs], Any]] = {
    "LISTSTATUS": lambda client: client.list("/a"),
    "GETFILESTATUS": lambda client: client.size("/a"),
    "OPEN": opened,
    "OPEN into": filled,
    "CREATE": lambda client: client.create("/a", BytesIO(WORDS), 5),
    "MKDIRS": lambda client: client.make_folder("/a"),
    "RENAME": lambda client: client.rename("/a", "/b"),
    "DELETE": lambda client: client.delete("/a"),
}
IN_JSON = ["LISTSTATUS", "GETFILESTATUS", "MKDIRS", "RENAME", "DELETE"]


def refused(server: Server, call: str) -> str:
    with pytest.raises(StorageError) as told:
        CALLS[call](asking(server))
    assert "secret" not in str(told.value)
    return str(told.value)


def asked(server: Server, op: str) -> int:
    return sum(query["op"] == op for _, query in server.asked)


@pytest.mark.parametrize("call", ["OPEN", "OPEN into"])
def test_a_file_is_read_where_the_name_node_sends_us(server: Server, call: str) -> None:
    assert CALLS[call](asking(server)) == WORDS
    assert asking(server).open("/a", 5, 9).read() == b""


@pytest.mark.parametrize("size", [5, None])
@pytest.mark.parametrize("call", ["OPEN", "OPEN into"])
def test_a_gateway_that_sends_nobody_on_is_read_from(
    server: Server, call: str, size: int | None
) -> None:
    server.says["OPEN"], server.sizes["OPEN"] = (200, WORDS, None), size
    assert CALLS[call](asking(server)) == WORDS


def test_a_file_is_written_where_the_name_node_sends_us(server: Server) -> None:
    CALLS["CREATE"](asking(server))
    assert server.sent == [b"", WORDS]


@pytest.mark.parametrize("status", [200, 201])
def test_a_file_that_nobody_was_sent_to_write_is_not_written(server: Server, status: int) -> None:
    server.says["CREATE"] = (status, {"Location": f"{server.url}/data?op=WRITE"}, None)
    assert "nothing was written" in refused(server, "CREATE")


@pytest.mark.parametrize(
    "place",
    [
        None,
        "",
        "/data?op=READ",
        "data",
        "http:///data",
        "http://127.0.0.1:abc/x",
        "http://127.0.0.1:0/x",
        "http://127.0.0.1:99999/x",
        "http://[::1/x",
        "http://a..b:9864/x",
        "http://nobody:9864/a b",
        "http://me@nobody:9864/x",
        "hdfs://127.0.0.1:8020/x",
        "file:///etc/passwd",
        "ftp://127.0.0.1/x",
        "javascript:alert(1)",
    ],
)
@pytest.mark.parametrize("call", ["OPEN", "CREATE"])
def test_what_is_no_address_is_refused_as_it_came(
    server: Server, call: str, place: str | None
) -> None:
    server.says[call] = (307, b"", None if place is None else f"{place}?delegation=secret"[:999])
    if place == "":
        server.says[call] = (307, b"", "")
    told = refused(server, call)
    asked_of = f"HDFS at 127.0.0.1:{server.server_port} does not do {call} of /a"
    assert f"{asked_of}: the name node sent us to " in told
    assert (repr(place.partition("?")[0]) if place else "nowhere") in told
    assert "no address of a data node" in told
    assert asked(server, call) == 1  # it is not asked for again


def test_a_data_node_that_speaks_another_protocol_is_refused(server: Server) -> None:
    server.says["OPEN"] = (307, b"", "https://127.0.0.1:9865/x")
    assert "the data nodes must speak http too" in refused(server, "OPEN")


@pytest.mark.parametrize("call", ["OPEN", "CREATE"])
def test_a_data_node_that_cannot_be_reached_is_named_with_who_sent_us(
    server: Server, free_ports: FreePorts, call: str
) -> None:
    where = f"127.0.0.1:{free_ports(1)[0]}"
    server.says[call] = (307, b"", f"http://{where}/x?op=X")
    told = refused(server, call)
    assert f"HDFS at 127.0.0.1:{server.server_port} " in told
    assert f"data node {where}, to which the name node sent us: ConnectionRefusedError" in told


@pytest.mark.parametrize("status", [200, 204, 307, 400, 500])
def test_a_data_node_that_does_not_say_that_it_wrote_is_named(server: Server, status: int) -> None:
    server.says["WRITE"] = (status, b"", f"{server.url}/again?op=WRITE")
    told = refused(server, "CREATE")
    assert f"127.0.0.1:{server.server_port}, to which the name node sent us: HTTP {status}" in told


@pytest.mark.parametrize("op", IN_JSON)
def test_an_operation_without_data_is_sent_nowhere(server: Server, op: str) -> None:
    server.says[op] = (307, b"", f"{server.url}/data?op=ELSEWHERE")
    assert "HTTP 307" in refused(server, op)
    assert asked(server, "ELSEWHERE") == 0


ODD = [b"", b"<html>", b"[]", b"null", b'"x"', b"{}", b"\xff", b"[" * 9999, b'{"boolean":']
ODD += [b'{"FileStatuses": {"FileStatus": {}}}', b'{"FileStatuses": []}', b'{"FileStatus": [1]}']


@pytest.mark.parametrize("said", ODD)
@pytest.mark.parametrize("op", IN_JSON)
def test_an_answer_that_is_none_is_told_once(server: Server, op: str, said: bytes) -> None:
    server.says[op] = (200, said, None)
    assert "answered with what is none of WebHDFS" in refused(server, op)
    assert asked(server, op) == 1


@pytest.mark.parametrize("said", ["false", "true", 0, 1, None, [], {}])
@pytest.mark.parametrize("op", ["MKDIRS", "RENAME", "DELETE"])
def test_a_boolean_that_is_none_is_told(server: Server, op: str, said: Any) -> None:
    server.says[op] = (200, {"boolean": said}, None)
    assert "answered with what is none of WebHDFS" in refused(server, op)


def test_what_was_not_done_is_known_of_each_operation(server: Server) -> None:
    for op in ("MKDIRS", "RENAME", "DELETE"):
        server.says[op] = (200, {"boolean": False}, None)
    assert "MKDIRS of /a: it was answered and not done" in refused(server, "MKDIRS")
    assert CALLS["RENAME"](asking(server)) is False
    CALLS["DELETE"](asking(server))  # there was none


@pytest.mark.parametrize(
    "change",
    [
        {"length": -1},
        {"length": "5"},
        {"length": 1.5},
        {"length": True},
        {"length": 1 << 63},
        {"length": None},
        {"modificationTime": []},
        {"type": None},
        {"pathSuffix": None},
        {"pathSuffix": ".."},
        {"pathSuffix": "../../etc"},
        {"pathSuffix": "a\0"},
    ],
)
def test_a_file_of_an_odd_size_or_name_is_told(server: Server, change: dict[str, Any]) -> None:
    server.says["LISTSTATUS"] = (200, {"FileStatuses": {"FileStatus": [ROW, ROW | change]}}, None)
    server.says["GETFILESTATUS"] = (200, {"FileStatus": ROW | change}, None)
    for call in ("LISTSTATUS", "GETFILESTATUS", "OPEN"):
        assert "none of WebHDFS" in (told := refused(server, call)) or "names a file" in told


@pytest.mark.parametrize(
    ("said", "size"),
    [(b"word", 4), (b"word", 5), (b"word", None), (b"words!", 6), (b"words!", None), (b"", 0)],
)
@pytest.mark.parametrize("call", ["OPEN", "OPEN into"])
@pytest.mark.parametrize("op", ["OPEN", "READ"])
def test_a_part_of_another_length_than_was_asked_is_told(
    server: Server, op: str, call: str, said: bytes, size: int | None
) -> None:
    server.says[op], server.sizes[op] = (200, said, None), size
    assert "of /a: " in refused(server, call)


def test_a_list_that_is_too_long_is_told(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(format_, "ANSWER_SIZE_MAX", 100)
    server.says["LISTSTATUS"] = (200, {"FileStatuses": {"FileStatus": [ROW] * 9}}, None)
    assert "more than 100 bytes" in refused(server, "LISTSTATUS")


@pytest.mark.parametrize("said", [b"<html>", b"", b"[" * 9999, {"RemoteException": []}])
def test_a_404_of_something_that_is_no_name_node_is_no_absence(server: Server, said: Any) -> None:
    for call in ("LISTSTATUS", "GETFILESTATUS", "RENAME", "DELETE"):
        server.says[call] = (404, said, None)
        assert "HTTP 404" in refused(server, call)


def test_what_a_name_node_says_is_absent_is(server: Server) -> None:
    for op in ("LISTSTATUS", "GETFILESTATUS", "RENAME", "DELETE"):
        server.says[op] = (404, MISSING, None)
    assert [CALLS[op](asking(server)) for op in ("LISTSTATUS", "GETFILESTATUS")] == [[], None]
    assert CALLS["RENAME"](asking(server)) is False
    CALLS["DELETE"](asking(server))
    with pytest.raises(FileNotFoundError):
        opened(asking(server))


@pytest.mark.parametrize(
    ("status", "name", "times"),
    [
        (403, "AccessControlException", 1),
        (500, "AccessControlException", 1),
        (401, "", 1),
        (405, "", 1),
        (403, "SafeModeException", TRIES_MAX),
        (403, "StandbyException", TRIES_MAX),
        (503, "", TRIES_MAX),
    ],
)
def test_what_may_pass_is_asked_for_again(
    server: Server, status: int, name: str, times: int
) -> None:
    said: Any = {"RemoteException": {"exception": name, "message": "no\nat java"}}
    server.says["MKDIRS"] = (status, said if name else b"no", None)
    assert f"{name or f'HTTP {status}'}: no; look at" in refused(server, "MKDIRS")
    assert asked(server, "MKDIRS") == times
