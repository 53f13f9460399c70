"""A folder and a real HDFS give the same answers; HDFS is killed, locked and cut off meanwhile."""

import http.server
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from appliance.base.errors import TargetError, TargetRefused, TargetUnavailable
from appliance.base.prng import Prng
from appliance.drivers.hdfs.folder import FolderTarget
from appliance.drivers.hdfs.target import Limiter, Target
from appliance.drivers.hdfs.webhdfs import WebHdfs
from appliance.formats.webhdfs_call import Login
from appliance.reports.file_store import file_store_of, read_all
from tests.patience import HUNG_S
from tests.system import hdfs_site
from tests.system.hdfs_site import USER, Hdfs, fresh_folder

DATA = bytes(range(256)) * 5000


def over_http(hdfs: Hdfs, folder: str = "", **how: Any) -> WebHdfs:
    return WebHdfs(f"{hdfs.url}/{folder or fresh_folder()}", user=USER, prng=Prng(1), **how)


@pytest.fixture(params=["folder", "hdfs"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Target:
    if request.param == "folder":
        return FolderTarget(tmp_path / "root")
    return over_http(request.getfixturevalue("hdfs"))


def test_a_file_is_put_renamed_read_listed_and_deleted(target: Target) -> None:
    assert target.list("_incoming") == []
    assert target.status("_incoming/7-a") is None
    target.put("_incoming/7-a", DATA)
    assert target.status("_incoming/7-a").size == len(DATA)
    assert target.rename("_incoming/7-a", "date=2026-01-02/hour=03/a", overwrite=False)
    assert b"".join(target.read("date=2026-01-02/hour=03/a")) == DATA
    assert [(e.name, e.size) for e in target.list("date=2026-01-02/hour=03")] == [("a", len(DATA))]
    assert [e.is_folder for e in target.list("date=2026-01-02")] == [True]
    assert target.status("_incoming/7-a") is None
    assert target.delete("date=2026-01-02/hour=03/a")
    assert not target.delete("date=2026-01-02/hour=03/a")
    assert not target.delete("nowhere/a")


def test_rename_replaces_only_when_it_is_told_to(target: Target) -> None:
    target.put("a", b"old")
    target.put("b", b"new")
    assert not target.rename("b", "a", overwrite=False)
    assert b"".join(target.read("a")) == b"old"
    assert target.rename("b", "a", overwrite=True)
    assert b"".join(target.read("a")) == b"new"
    assert target.status("b") is None


def test_put_replaces_what_was_half_written(target: Target) -> None:
    target.put("_incoming/a", b"half")
    target.put("_incoming/a", DATA)
    assert b"".join(target.read("_incoming/a")) == DATA


def test_an_empty_file_and_odd_names_pass(target: Target) -> None:
    target.put("odd name+%41=&?.x", b"")
    assert target.status("odd name+%41=&?.x").size == 0
    assert b"".join(target.read("odd name+%41=&?.x")) == b""


def test_after_abort_nothing_passes(target: Target) -> None:
    target.abort()
    with pytest.raises(TargetUnavailable, match="stops"):
        target.put("a", b"x")


def test_the_limit_holds_back_what_is_too_fast() -> None:
    limiter = Limiter(1_000_000)
    started = time.monotonic()
    for _ in range(5):
        limiter.take(50_000)
    assert time.monotonic() - started >= 0.2  # the first may pass at once
    waiting = threading.Thread(target=lambda: pytest.raises(TargetUnavailable, limiter.take, 10**9))
    limiter.take(10**9)
    waiting.start()
    limiter.stop()
    waiting.join(HUNG_S)
    assert not waiting.is_alive()


def test_a_folder_that_is_a_file_is_the_operators_matter(tmp_path: Path) -> None:
    (tmp_path / "root").write_text("in the way")
    with pytest.raises(TargetRefused, match="root"):
        FolderTarget(tmp_path / "root").put("a", b"x")


def test_reports_write_list_read_parts_rename_and_delete_over_the_same_hdfs(hdfs: Hdfs) -> None:
    place = file_store_of(f"{hdfs.webhdfs_url}/{fresh_folder()}", login=Login(USER))
    assert place.list("") == [] and place.size("a/b") is None
    data = bytes(range(256)) * 3000
    place.write("a/b", data)
    assert [(entry.name, entry.size) for entry in place.list("a")] == [("b", len(data))]
    assert read_all(place, "a/b") == data
    assert place.open("a/b", 1000, 500).read() == data[1000:1500]
    assert place.open("a/b", len(data) - 7, 500).read() == data[-7:]
    assert place.rename("a/b", "c/d e") and not place.rename("a/b", "c/d e")
    assert [entry.name for entry in place.list("c")] == ["d e"]
    place.delete("c")
    place.delete("c")
    with pytest.raises(FileNotFoundError):
        read_all(place, "c/d e")


# --- HDFS in trouble ------------------------------------------------------------------------------


def test_a_port_where_nobody_listens_is_unavailable(free_port: int) -> None:
    target = WebHdfs(f"http://127.0.0.1:{free_port}/x", user=USER, prng=Prng(1))
    with pytest.raises(TargetUnavailable, match=f"127.0.0.1:{free_port}"):
        target.put("a", b"x")


def test_what_a_name_node_unpacks_is_in_its_folder_and_goes_with_it(hdfs: hdfs_site.Hdfs) -> None:
    hdfs.ensure()
    assert list((hdfs.folder / "tmp").glob("jetty-*"))


def test_safe_mode_is_unavailable_and_passes(hdfs: hdfs_site.Hdfs) -> None:
    target = over_http(hdfs)
    target.put("a", b"before")
    hdfs.safe_mode(True)
    for size in (1, 1 << 20, 16 << 20):  # what is large is refused while it is being sent
        with pytest.raises(TargetUnavailable, match="safe mode"):
            target.put("b", bytes(size))
    with pytest.raises(TargetUnavailable, match="safe mode"):
        target.rename("a", "c", overwrite=False)
    assert b"".join(target.read("a")) == b"before"
    hdfs.safe_mode(False)
    target.put("b", b"x")


def test_without_a_data_node_nothing_is_taken_and_later_all_is(hdfs: hdfs_site.Hdfs) -> None:
    folder = fresh_folder()
    hdfs.kill("datanode")
    with pytest.raises(TargetUnavailable):
        over_http(hdfs, folder, answer_s=5.0).put("a", DATA)
    hdfs.ensure()
    target = over_http(hdfs, folder)
    target.put("a", DATA)
    assert b"".join(target.read("a")) == DATA


def test_a_name_node_restarted_in_the_middle_of_a_put_leaves_no_wrong_file(
    hdfs: hdfs_site.Hdfs,
) -> None:
    folder = fresh_folder()
    slow = over_http(hdfs, folder, rate_max=400_000, answer_s=5.0)
    failed: list[Exception] = []

    def put() -> None:
        try:
            slow.put("_incoming/1-a", DATA)
        except TargetError as error:
            failed.append(error)

    putting = threading.Thread(target=put)
    putting.start()
    time.sleep(0.7)
    hdfs.kill("namenode")
    hdfs.ensure()
    putting.join(HUNG_S)
    assert not putting.is_alive()
    assert [type(error) for error in failed] in ([], [TargetUnavailable]), failed
    target = over_http(hdfs, folder)
    target.put("_incoming/1-a", DATA)  # what the shipper does next: the same again
    assert target.rename("_incoming/1-a", "a", overwrite=False)
    assert b"".join(target.read("a")) == DATA
    assert target.list("_incoming") == []


def test_abort_ends_a_put_that_is_under_way(hdfs: hdfs_site.Hdfs) -> None:
    target = over_http(hdfs, rate_max=2_000)  # it would take longer than is waited for
    ended = threading.Event()

    def put() -> None:
        with pytest.raises(TargetUnavailable):
            target.put("a", DATA)
        ended.set()

    putting = threading.Thread(target=put)
    putting.start()
    time.sleep(0.5)
    target.abort()
    assert ended.wait(HUNG_S)
    putting.join()


# --- what a name node may answer ------------------------------------------------------------------


class Refusing(http.server.BaseHTTPRequestHandler):
    """Answers as a secure cluster does to a user without rights, and notes what it was asked."""

    asked: list[str] = []

    def do_PUT(self) -> None:
        self.asked.append(self.path)
        body = (
            b'{"RemoteException":{"exception":"AccessControlException","javaClassName":"x",'
            b'"message":"Permission denied: user=x"}}'
        )
        self.send_response(403)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def refusing(free_port: int) -> Iterator[str]:
    Refusing.asked.clear()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", free_port), Refusing)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{free_port}/x"
    server.shutdown()
    thread.join()
    server.server_close()


def test_missing_rights_are_the_operators_matter_and_not_tried_again(refusing: str) -> None:
    with pytest.raises(TargetRefused, match="Permission denied"):
        WebHdfs(refusing, user="x", prng=Prng(1)).make_folder("a")
    assert len(Refusing.asked) == 1


def test_a_delegation_token_is_read_from_a_file_that_nobody_else_may_read(
    refusing: str, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text("SECRET\n")
    token.chmod(0o644)
    target = WebHdfs(refusing, user="x", token_file=token, prng=Prng(1))
    with pytest.raises(TargetRefused, match="chmod 600"):
        target.make_folder("a")
    assert Refusing.asked == []
    token.chmod(0o600)
    with pytest.raises(TargetRefused):
        target.make_folder("a")
    assert "delegation=SECRET" in Refusing.asked[0]
    assert "user.name" not in Refusing.asked[0]
    with pytest.raises(TargetRefused, match="cannot be read"):
        WebHdfs(refusing, user="x", token_file=Path("/nowhere"), prng=Prng(1)).make_folder("a")


def test_a_silent_name_node_is_given_up_after_its_time(free_port: int) -> None:
    with socket.create_server(("127.0.0.1", free_port)):
        target = WebHdfs(f"http://127.0.0.1:{free_port}/x", user="x", prng=Prng(1), answer_s=0.2)
        with pytest.raises(TargetUnavailable, match="time"):
            target.status("a")
