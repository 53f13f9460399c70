"""Who ships and who reports get the same outcome of the same answers, with as many requests.

The other side is a socket that gives its answers one by one, whole, broken or not at all.
"""

import json
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

import pytest

from appliance.base.errors import StorageError, TargetError, TargetRefused, TargetUnavailable
from appliance.base.prng import Prng
from appliance.drivers.hdfs import webhdfs as shipping
from appliance.drivers.hdfs.webhdfs import WebHdfs
from appliance.formats.webhdfs_call import Login, Patience
from appliance.reports import webhdfs as reporting
from appliance.reports.webhdfs import Hdfs
from tests.patience import HUNG_S

TRIES_MAX = 3
WORDS = b"words"
RESET = b""  # instead of an answer
ROW = {"pathSuffix": "x", "type": "FILE", "length": 5, "modificationTime": 1}


def answer(status: int, said: Any = b"", *, place: str = "", size: int | None = None) -> bytes:
    """With `size` as the length that is announced, which the body may be less than."""
    body = said if isinstance(said, bytes) else json.dumps(said).encode()
    location = f"Location: {place}\r\n" if place else ""
    head = f"HTTP/1.1 {status} Said\r\n{location}Content-Length: {size or len(body)}\r\n\r\n"
    return head.encode() + body


def exception(status: int, name: str) -> bytes:
    return answer(status, {"RemoteException": {"exception": name, "message": "no\nat java"}})


YES, NO = answer(200, {"boolean": True}), answer(200, {"boolean": False})
SENT_ON = answer(307, place="http://127.0.0.1:PORT/data?op=DATA&delegation=secret")
LISTED = answer(200, {"FileStatuses": {"FileStatus": [ROW]}})
FOUND = answer(200, {"FileStatus": ROW})
READ, WRITTEN = answer(200, WORDS), answer(201)
STANDBY, SAFE_MODE = exception(403, "StandbyException"), exception(403, "SafeModeException")
RIGHTS, ABSENT = exception(403, "AccessControlException"), exception(404, "FileNotFoundException")


class Server:
    """Gives `answers` in turn, each on a connection of its own, and notes what was asked."""

    def __init__(self) -> None:
        self.answers: list[bytes] = []
        self.asked: list[str] = []  # operations
        self.sent: list[bytes] = []  # bodies
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            connection, _ = self._listening.accept()
            with connection, connection.makefile("rb") as stream:
                if not (line := stream.readline()):
                    return  # `close` has connected
                fields = dict(row.split(b": ") for row in iter(stream.readline, b"\r\n"))
                self.sent.append(stream.read(int(fields.get(b"Content-Length", 0))))
                query = parse_qs(urlsplit(line.split()[1].decode()).query)
                self.asked.append(query["op"][0])
                said = self.answers.pop(0) if self.answers else answer(500, b"nobody asks this")
                connection.sendall(said.replace(b"PORT", str(self.port).encode()))
                if said == RESET:
                    connection.setsockopt(
                        socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
                    )

    def close(self) -> None:
        socket.create_connection(("127.0.0.1", self.port)).close()
        self._thread.join(HUNG_S)
        assert not self._thread.is_alive()
        self._listening.close()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    for transport in (shipping, reporting):
        monkeypatch.setattr(transport, "PATIENCE", Patience(TRIES_MAX, 2, 4))
    found = Server()
    yield found
    found.close()


class Doing(NamedTuple):
    """An operation as both know it, and the answers to what either asks before."""

    ship: Callable[[WebHdfs], Any]
    before_ship: list[bytes]
    report: Callable[[Hdfs], Any]
    before_report: list[bytes]


def size_of(target: WebHdfs) -> int | None:
    found = target.status("a")
    return None if found is None else found.size


def read_by_report(client: Hdfs) -> bytes:
    with client.open("/a", 0, len(WORDS)) as stream:
        return stream.read()


DOING = {
    "list": Doing(
        lambda target: [(e.name, e.is_folder, e.size) for e in target.list("a")],
        [],
        lambda client: client.list("/a"),
        [],
    ),
    "size": Doing(size_of, [], lambda client: client.size("/a"), []),
    "read": Doing(lambda target: b"".join(target.read("a")), [], read_by_report, [FOUND]),
    "write": Doing(
        lambda target: target.put("a", WORDS),
        [YES],
        lambda client: client.create("/a", WORDS, len(WORDS)),
        [],
    ),
    "rename": Doing(
        lambda target: target.rename("a", "b", overwrite=False),
        [YES],
        lambda client: client.rename("/a", "/b"),
        [],
    ),
    "make": Doing(
        lambda target: target.make_folder("a"), [], lambda client: client.make_folder("/a"), []
    ),
    "delete": Doing(
        lambda target: target.delete("a"), [], lambda client: client.delete("/a") or True, []
    ),
}


class Told(NamedTuple):
    """An outcome that is a failure: as what it is raised by who ships, and some of its words."""

    kind: type[TargetError]
    words: str


def lasts(words: str) -> Told:
    return Told(TargetRefused, words)


def passes(words: str) -> Told:
    return Told(TargetUnavailable, words)


HALF = answer(200, {"FileStatuses": {"FileStatus": [ROW]}}, size=999)
DATA_NODE = "data node 127.0.0.1:PORT, to which the name node sent us: "

# story -> (what is done, what is answered in turn, the outcome); all answers are asked for.
CASES: dict[str, tuple[str, list[bytes], Any]] = {
    "read where we are sent": ("read", [SENT_ON, READ], WORDS),
    "read from a gateway that sends nobody on": ("read", [READ], WORDS),
    "written where we are sent": ("write", [SENT_ON, WRITTEN], None),
    "written by who sends us nowhere": ("write", [WRITTEN], passes("nothing was written")),
    "sent to no address": ("read", [answer(307, place="hdfs://x")], lasts("no address of a data")),
    "sent to a data node without TLS": (
        "write",
        [answer(302, place="https://127.0.0.1:PORT/x")],
        lasts("the data nodes must speak http too"),
    ),
    "sent elsewhere for what a name node knows": ("list", [SENT_ON], passes("HTTP 307")),
    "no right": ("list", [RIGHTS], lasts("AccessControlException: no")),
    "no right at a data node": (
        "write",
        [SENT_ON, RIGHTS],
        lasts(f"{DATA_NODE}AccessControlException: no"),
    ),
    "no login": ("make", [answer(401, b"who?")], lasts("HTTP 401: who?")),
    "over a quota": ("make", [exception(500, "DSQuotaExceededException")], lasts("DSQuota")),
    "an empty folder that is none": ("list", [ABSENT], []),
    "a file that is none": ("size", [ABSENT], None),
    "a file that is gone when it is read": ("read", [SENT_ON, ABSENT], passes("")),
    "a 404 of no name node": ("list", [answer(404, b"<html>")], passes("HTTP 404: <html>")),
    "a refusal of no HDFS": ("list", [answer(405, b"no")], passes("HTTP 405: no")),
    "standby once": ("list", [STANDBY, LISTED], [("x", False, 5)]),
    "standby each time": ("list", [STANDBY] * TRIES_MAX, passes("StandbyException: no")),
    "safe mode, then not": ("write", [SAFE_MODE, SENT_ON, SAFE_MODE, SENT_ON, WRITTEN], None),
    "busy each time": ("size", [answer(503, b"busy")] * TRIES_MAX, passes("HTTP 503: busy")),
    "reset once": ("list", [RESET, LISTED], [("x", False, 5)]),
    "reset each time": ("rename", [RESET] * TRIES_MAX, passes("ConnectionResetError")),
    "reset by a data node": ("write", [SENT_ON, RESET, SENT_ON, WRITTEN], None),
    "reset by a data node each time": ("read", [SENT_ON, RESET] * TRIES_MAX, passes(DATA_NODE)),
    "half an answer once": ("list", [HALF, LISTED], [("x", False, 5)]),
    "half an answer each time": ("list", [HALF] * TRIES_MAX, passes("bytes early")),
    "half a file": (
        "read",
        [SENT_ON, answer(200, b"wo", size=len(WORDS))],
        passes("it ended 3 bytes early"),
    ),
    "an answer that is none": ("make", [answer(200, b"<html>")], passes("none of WebHDFS")),
    "not made": ("make", [NO], lasts("it was answered and not done: look at what has that name")),
    "a name that is taken": ("rename", [NO], False),
    "renamed": ("rename", [YES], True),
    "deleted": ("delete", [YES], True),
}


def outcome(server: Server, answers: list[bytes], before: list[bytes], do: Any, asking: Any) -> Any:
    """(its value or what was raised, operations asked for, bodies that came with them)."""
    server.answers, server.asked, server.sent = [*before, *answers], [], []
    try:
        found = do(asking)
    except (TargetError, StorageError, FileNotFoundError) as error:
        found = error
    assert not server.answers, "asked too little"
    return found, server.asked[len(before) :], server.sent[len(before) :]


@pytest.mark.parametrize("story", CASES)
def test_who_ships_and_who_reports_get_the_same_of_the_same_answers(
    server: Server, story: str
) -> None:
    name, answers, wanted = CASES[story]
    doing = DOING[name]
    target = WebHdfs(f"http://127.0.0.1:{server.port}", user="u", prng=Prng(1))
    client = Hdfs(f"127.0.0.1:{server.port}", False, Login(user="u"))
    shipped, *asked = outcome(server, answers, doing.before_ship, doing.ship, target)
    reported, *asked_too = outcome(server, answers, doing.before_report, doing.report, client)
    assert asked == asked_too
    assert len(asked[0]) == len(answers)
    if not isinstance(wanted, Told):
        assert shipped == reported == wanted
        return
    assert type(shipped) is wanted.kind
    assert isinstance(reported, StorageError | FileNotFoundError)
    words = wanted.words.replace("PORT", str(server.port))
    for told in (str(shipped), str(reported)):
        assert words in told
        assert "secret" not in told
