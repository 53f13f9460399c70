"""Where a name node sends us, and what gateways answer in its place: told by name, never believed.

The other side is a small server on loopback that says what is asked of it.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from appliance.base.errors import ConfigurationError, TargetError, TargetRefused, TargetUnavailable
from appliance.base.prng import Prng
from appliance.drivers.hdfs import webhdfs as shipping
from appliance.drivers.hdfs.open_target import open_target
from appliance.drivers.hdfs.webhdfs import WebHdfs
from appliance.formats import webhdfs
from appliance.formats.settings import SETTINGS_FILE, load_settings
from tests.name_node import Server, name_node
from tests.ports import FreePorts

MISSING = {"RemoteException": {"exception": "FileNotFoundException", "message": "none"}}


@pytest.fixture
def server() -> Iterator[Server]:
    with name_node() as found:
        yield found


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
    ("http://a..b:9864/x", "http://a..b:9864/x"),
    (f"http://{'a' * 70}:9864/x", f"http://{'a' * 70}:9864/x"),
    ("http://nobody:9864/a b", "http://nobody:9864/a b"),
    ("http://me@nobody:9864/x", "http://me@nobody:9864/x"),
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
    assert f"{server.url}/chat: {op} of a: the name node sent us to {told}, which is no" in str(
        refused.value
    )
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


@pytest.mark.parametrize(
    ("where", "good"),
    [
        ("http://name-node:9870/чат/of all", True),
        ("https://[::1]:9871/chat", True),
        ("http://name-node", True),
        ("http://a..b:9870/chat", False),
        (f"http://{'a' * 70}:9870/chat", False),
        ("http://name-node:99999/chat", False),
        ("http://name-node:0/chat", False),
        ("http://[::1/chat", False),
        ("http:///chat", False),
        ("http://me@name-node/chat", False),
        ("http://name-node/chat?op=OPEN", False),
        ("hdfs://name-node:8020/chat", False),
    ],
)
def test_a_target_to_which_nobody_can_connect_is_refused_by_its_setting(
    tmp_path: Path, where: str, good: bool
) -> None:
    (tmp_path / SETTINGS_FILE).write_text(f'index = 0\nship_target = "{where}"\n', "utf-8")
    settings = load_settings(tmp_path / SETTINGS_FILE)
    if good:
        open_target(settings, tmp_path, tmp_path / "own", Prng(1))
    else:
        with pytest.raises(ConfigurationError, match="ship_target is"):
            open_target(settings, tmp_path, tmp_path / "own", Prng(1))


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


CALLS: dict[str, Callable[[WebHdfs], Any]] = {
    "LISTSTATUS": lambda target: target.list("a"),
    "GETFILESTATUS": lambda target: target.status("a"),
    "RENAME": lambda target: target.rename("a", "b", overwrite=False),
    "RENAME over": lambda target: target.rename("a", "b", overwrite=True),
    "MKDIRS": lambda target: target.make_folder("a"),
    "DELETE": lambda target: target.delete("a"),
}


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    brief = shipping.PATIENCE._replace(pause_ms_min=2)
    monkeypatch.setattr(shipping, "PATIENCE", brief)


@pytest.mark.parametrize("said", [b"<html>", b"[]", b"null", b'"x"', b"{}", b"\xff", b"[" * 9999])
@pytest.mark.parametrize("call", CALLS)
def test_an_answer_that_is_none_is_an_error_of_the_target(
    server: Server, call: str, said: bytes
) -> None:
    server.says[call.split()[0]] = (200, said, None)
    with pytest.raises(TargetError, match="none of WebHDFS"):
        CALLS[call](target(server))


@pytest.mark.parametrize("said", ["false", "true", 0, 1, None, [], [True], {"boolean": True}])
@pytest.mark.parametrize("call", ["RENAME", "RENAME over", "MKDIRS", "DELETE"])
def test_a_boolean_that_is_none_is_an_error_of_the_target(
    server: Server, call: str, said: Any
) -> None:
    server.says[call.split()[0]] = (200, {"boolean": said}, None)
    with pytest.raises(TargetError, match="none of WebHDFS"):
        CALLS[call](target(server))


@pytest.mark.parametrize(
    "call",
    [
        lambda target: target.make_folder("a"),
        lambda target: target.put("a/b", b"x"),
        lambda target: target.rename("b", "a/b", overwrite=False),
        lambda target: target.rename("b", "a/b", overwrite=True),
    ],
)
def test_a_folder_that_was_not_made_is_refused_each_time(
    server: Server, call: Callable[[WebHdfs], Any]
) -> None:
    server.says["MKDIRS"] = (200, {"boolean": False}, None)
    asking = target(server)
    for _ in range(2):  # and is not taken for made
        with pytest.raises(TargetRefused, match="MKDIRS of a: it was answered and not done"):
            call(asking)
    assert {asked["op"] for _, asked in server.asked} == {"MKDIRS"}


ROW = {"pathSuffix": "x", "type": "FILE", "length": 1, "modificationTime": 1}


@pytest.mark.parametrize(
    "change",
    [
        {"length": -1},
        {"length": "1"},
        {"length": 1.5},
        {"length": True},
        {"length": 1 << 63},
        {"length": None},
        {"modificationTime": "now"},
        {"type": 7},
        {"pathSuffix": 7},
        {"pathSuffix": ".."},
        {"pathSuffix": "../x"},
        {"pathSuffix": "a/b"},
        {"pathSuffix": "a\0"},
    ],
)
def test_a_file_of_an_odd_size_or_name_is_an_error_of_the_target(
    server: Server, change: dict[str, Any]
) -> None:
    server.says["LISTSTATUS"] = (200, {"FileStatuses": {"FileStatus": [ROW, ROW | change]}}, None)
    server.says["GETFILESTATUS"] = (200, {"FileStatus": ROW | change}, None)
    for call in ("LISTSTATUS", "GETFILESTATUS"):
        with pytest.raises(TargetError):
            CALLS[call](target(server))


@pytest.mark.parametrize("said", [b"<html>", b"", {"RemoteException": {"exception": "Odd"}}])
def test_a_404_of_something_that_is_no_name_node_is_no_absence(server: Server, said: Any) -> None:
    for call in ("LISTSTATUS", "GETFILESTATUS", "DELETE"):
        server.says[call] = (404, said, None)
        with pytest.raises(TargetError, match="HTTP 404"):
            CALLS[call](target(server))
        server.says[call] = (404, MISSING, None)
        assert not CALLS[call](target(server))


def test_a_file_that_ends_before_its_size_is_an_error_of_the_target(server: Server) -> None:
    server.says["OPEN"], server.sizes["OPEN"] = (200, b"half", None), 8
    with pytest.raises(TargetUnavailable, match="ended 4 bytes early"):
        list(target(server).read("a"))


def test_a_list_that_is_too_long_is_an_error_of_the_target(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhdfs, "ANSWER_SIZE_MAX", 100)
    server.says["LISTSTATUS"] = (200, {"FileStatuses": {"FileStatus": [ROW] * 9}}, None)
    with pytest.raises(TargetError, match="more than 100 bytes"):
        target(server).list("a")
