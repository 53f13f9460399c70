"""Where a name node sends us, and what gateways answer in its place: told by name, never believed.

The other side is a small server on loopback that says what is asked of it: no real name node sends
anybody to nonsense, and gateways of old releases are a cluster each.
"""

import http.server
import json
import threading
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from appliance.base.errors import TargetError, TargetRefused, TargetUnavailable
from appliance.base.prng import Prng
from appliance.drivers.hdfs.webhdfs import WebHdfs
from tests.ports import FreePorts

MISSING = {"RemoteException": {"exception": "FileNotFoundException", "message": "none"}}


class NameNode(http.server.BaseHTTPRequestHandler):
    """Says yes, but to an operation of which `says` has (status, JSON or bytes, place)."""

    protocol_version = "HTTP/1.1"
    server: "Server"

    def _do(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        asked = {name: one[0] for name, one in parse_qs(urlsplit(self.path).query).items()}
        self.server.asked.append((urlsplit(self.path).path, asked))
        ok: tuple[int, Any, str | None] = (200, {"boolean": True}, None)
        status, said, place = self.server.says.get(asked["op"], ok)
        body = said if isinstance(said, bytes) else json.dumps(said).encode()
        self.send_response(status)
        if place is not None:
            self.send_header("Location", place)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_PUT = do_DELETE = _do

    def log_message(self, format: str, *args: Any) -> None:
        pass


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), NameNode)
        self.says: dict[str, tuple[int, Any, str | None]] = {}
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.url = f"http://127.0.0.1:{self.server_port}"


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as found:
        thread = threading.Thread(target=found.serve_forever, args=(0.01,))
        thread.start()
        yield found
        found.shutdown()
        thread.join()


def target(server: Server) -> WebHdfs:
    return WebHdfs(f"{server.url}/chat", user="u", prng=Prng(1))


PLACES = [
    ("http:///webhdfs/v1/x", "http:///webhdfs/v1/x"),
    ("/webhdfs/v1/x", "/webhdfs/v1/x"),
    ("webhdfs", "webhdfs"),
    ("http://127.0.0.1:abc/x", "http://127.0.0.1:abc/x"),
    ("http://127.0.0.1:0/x", "http://127.0.0.1:0/x"),
    ("http://127.0.0.1:99999/x", "http://127.0.0.1:99999/x"),
    ("http://[::1/x", "http://[::1/x"),
    ("hdfs://127.0.0.1:8020/x", "hdfs://127.0.0.1:8020/x"),
    ("http://:9864/x?delegation=secret", "http://:9864/x"),
    ("", "nowhere"),
]


@pytest.mark.parametrize("op", ["CREATE", "OPEN"])
@pytest.mark.parametrize(("place", "shown"), [*PLACES, (None, "nowhere")])
def test_what_is_no_address_is_refused_as_it_came(
    server: Server, op: str, place: str | None, shown: str
) -> None:
    server.says[op] = (307, b"", place)
    with pytest.raises(TargetRefused) as refused:
        target(server).put("a", b"x") if op == "CREATE" else [*target(server).read("a")]
    told = repr(shown) if place else shown
    assert f"{server.url}/chat: the name node sent us to {told}, which is no" in str(refused.value)
    assert "secret" not in str(refused.value)


def test_a_data_node_that_speaks_another_protocol_is_refused(server: Server) -> None:
    server.says["CREATE"] = (307, b"", "https://127.0.0.1:9865/x")
    with pytest.raises(TargetRefused, match="the data nodes must speak http too"):
        target(server).put("a", b"x")


@pytest.mark.parametrize("op", ["CREATE", "OPEN"])
@pytest.mark.parametrize("where", ["nobody.invalid:9864", "127.0.0.1:FREE"])
def test_a_data_node_that_cannot_be_reached_is_named_with_who_sent_us(
    server: Server, free_ports: FreePorts, op: str, where: str
) -> None:
    where = where.replace("FREE", str(free_ports(1)[0]))
    server.says[op] = (307, b"", f"http://{where}/webhdfs/v1/a?op={op}")
    with pytest.raises(TargetUnavailable) as failed:
        target(server).put("a", b"x") if op == "CREATE" else [*target(server).read("a")]
    assert f"{server.url}/chat: " in str(failed.value)
    assert f"data node {where}, to which the name node sent us: " in str(failed.value)


def test_folders_are_made_with_a_mode_of_their_own_before_a_file_is(server: Server) -> None:
    server.says["CREATE"] = (307, b"", f"{server.url}/data?op=WRITE")
    server.says["WRITE"] = (201, b"", None)
    writing = target(server)
    for _ in range(2):
        writing.put("date=1/hour=2/a", b"x")
    made = [(path, asked) for path, asked in server.asked if asked["op"] == "MKDIRS"]
    assert [path for path, _ in made] == ["/webhdfs/v1/chat/date=1/hour=2"]
    assert made[0][1]["permission"] == "755"


def test_a_gateway_that_sends_nobody_on_is_read_from(server: Server) -> None:
    server.says["OPEN"] = (200, b"words", None)
    assert b"".join(target(server).read("a")) == b"words"


def test_a_gateway_that_answers_a_rename_and_does_nothing_is_refused_by_name(
    server: Server,
) -> None:
    server.says["RENAME"] = (200, {"boolean": False}, None)
    assert not target(server).rename("a", "b", overwrite=False)
    with pytest.raises(TargetRefused, match=r"answered and not done, as HttpFS before 3\.5\.0"):
        target(server).rename("a", "b", overwrite=True)
    for said in (b"", {"boolean": True}):  # a name node says nothing, a newer gateway yes
        server.says["RENAME"] = (200, said, None)
        assert target(server).rename("a", "b", overwrite=True)


@pytest.mark.parametrize("status", [403, 500])
@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("AccessControlException", TargetRefused),
        ("DSQuotaExceededException", TargetRefused),
        ("SafeModeException", TargetUnavailable),
    ],
)
def test_what_lasts_is_known_by_its_name_whatever_status_it_comes_with(
    server: Server, status: int, name: str, kind: type[TargetError]
) -> None:
    said = {"RemoteException": {"exception": name, "message": "no"}}
    server.says["MKDIRS"] = (status, said, None)
    with pytest.raises(TargetError, match=name) as failed:
        target(server).put("a/b", b"x")
    assert type(failed.value) is kind


@pytest.mark.parametrize("said", [b"<html>", b"[]", b"null", b'"x"', b"{}", b"\xff"])
@pytest.mark.parametrize("op", ["LISTSTATUS", "GETFILESTATUS", "RENAME"])
def test_an_answer_that_is_none_is_an_error_of_the_target(
    server: Server, op: str, said: bytes
) -> None:
    server.says[op] = (200, said, None)
    calls = {
        "LISTSTATUS": lambda: target(server).list("a"),
        "GETFILESTATUS": lambda: target(server).status("a"),
        "RENAME": lambda: target(server).rename("a", "b", overwrite=False),
    }
    with pytest.raises(TargetError):
        calls[op]()
