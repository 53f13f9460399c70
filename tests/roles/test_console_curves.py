"""The console's curves: in a real file over its end, and for nobody who is not signed in."""

import asyncio
import json
import logging
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from appliance.base.layout import offset_of
from appliance.cores.console.curve_drawing import POINTS
from appliance.drivers.host.fixed_file import ASIDE
from appliance.drivers.host.node_folder import open_node
from appliance.formats.curves import (
    CURVES_HEAD,
    CURVES_SECOND,
    HOUR_S,
    SECONDS_AT,
    Curve,
    Figure,
    decode,
)
from appliance.node.catalogue import ROLES
from appliance.roles.console import curve_file
from appliance.roles.console.curve_file import CURVES_FILE, CurveFile
from appliance.roles.console.role import ConsoleRole
from appliance.roles.console.sign_ins import COOKIE
from tests.cores.console.worlds import healthy, read
from tests.roles.conftest import MakeSite
from tests.roles.test_console_acts import signed_in
from tests.roles.wired_site import WiredSite, until

CLUSTER = bytes(range(16))
LOG = logging.getLogger("test")
NOON_S = 1_700_000_000
CONNECTIONS = Curve(Figure.CONNECTIONS, 0, 0)


async def get(role: ConsoleRole, query: str, **heads: str) -> tuple[int, Any]:
    """Code and answer of `/console/curves`."""
    said: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        said.append(message)

    heads = {"host": "127.0.0.1"} | heads
    scope = {
        "type": "http", "http_version": "1.1", "method": "GET", "path": "/console/curves",
        "headers": [(key.replace("_", "-").encode(), text.encode()) for key, text in heads.items()],
        "query_string": query.encode(), "client": ("192.0.2.7", 1),
        "state": {"visitor": SimpleNamespace(signed_in=False)},
    }  # fmt: skip
    await role._app()(scope, receive, send)
    return said[0]["status"], json.loads(said[1]["body"])


def curves_of(role: ConsoleRole) -> CurveFile:
    return role._curve_file


def values(folder: Path, cluster: bytes, curve: Curve = CONNECTIONS) -> dict[int, float]:
    """By second, what the file has."""
    kept = decode((folder / CURVES_FILE).read_bytes(), cluster)
    written = kept.seconds[kept.seconds["second"] > 0]
    found = written["value"][:, kept.columns[curve]] if curve in kept.columns else []
    return dict(zip(written["second"].tolist(), np.asarray(found).tolist(), strict=True))


async def served(site: WiredSite, until_s: int) -> ConsoleRole:
    """A console that has run until the file has rows of a later second, and has ended."""
    role = ConsoleRole(open_node(site.node(0)), LOG, ROLES)
    serving = asyncio.create_task(role.serve())
    await until(lambda: serving.done() or curves_of(role).curves.newest > until_s)
    role._stopped.set()
    assert await serving == 0
    return role


def test_curves_outlive_the_console_and_what_lies_between_is_a_gap(
    make_site: MakeSite, capsys: pytest.CaptureFixture[str]
) -> None:
    async def story(site: WiredSite) -> None:
        await site.start_replica(0)
        await site.start_edge(0)
        cluster = open_node(site.node(0)).site.cluster
        await served(site, int(time.time()) + 1)
        before = values(site.node(0), cluster)
        last_s = max(before)
        assert len(before) >= 2 and set(before.values()) == {0.0}
        await until(lambda: time.time() > last_s + 3)
        again = await served(site, last_s)
        after = values(site.node(0), cluster)
        first_s = min(second for second in after if second > last_s)
        assert before.items() <= after.items() and first_s >= last_s + 3

        async def fresh() -> None:
            """Nobody polls any more."""

        again._fresh = fresh  # type: ignore[method-assign]
        with signed_in(again, capsys) as token:
            asked = "span=hour&of=node-0%20edge%200"
            code, told = await get(again, asked, cookie=f"{COOKIE}={token}")
        assert code == 200
        (subject,) = told["subjects"]
        connections = subject["curves"][0]
        assert (subject["subject"], connections["title"]) == ("node-0 edge 0", "connections")
        points = dict(enumerate(connections["mean"], told["begin"]))
        assert len(points) == HOUR_S and told["step_s"] == 1
        seen = {second for second, value in points.items() if value is not None}
        assert seen == set(after), "each second is there, and no other"

    make_site(1).run(story)


def test_curves_are_for_who_is_signed_in_and_of_a_bounded_size(
    make_site: MakeSite, capsys: pytest.CaptureFixture[str]
) -> None:
    async def story(site: WiredSite) -> None:
        role = ConsoleRole(open_node(site.node(0)), LOG, ROLES)
        await role.watch.poll_beside()
        role._polls, role._viewed_s = 1, time.monotonic()
        for second in range(5):
            curves_of(role).on_poll(
                read(healthy()), now_ms=second * 1000, wall_ms=(NOON_S + second) * 1000
            )
        assert await get(role, "span=hour") == (401, {"error": "sign in first"})
        assert (await get(role, "span=hour", cookie=f"{COOKIE}=made-up"))[0] == 401
        with signed_in(role, capsys) as token:
            cookie = f"{COOKIE}={token}"
            for span in ("hour", "day"):
                code, told = await get(role, f"span={span}", cookie=cookie)
                assert (code, told["span"]) == (200, span)
                assert told["subjects"][0]["subject"] == "shard 0"
                lengths = {
                    len(curve[name])
                    for subject in told["subjects"]
                    for curve in subject["curves"]
                    for name in ("mean", "most")
                }
                assert lengths == {POINTS}
            code, told = await get(role, "span=hour&of=nobody", cookie=cookie)
            assert (code, told["subjects"]) == (200, [])
            for query in ("", "span=year", "span=", "of=shard%200"):
                code, told = await get(role, query, cookie=cookie)
                assert (code, told) == (400, {"error": "expected a span: hour or day"}), query
            evil = {"origin": "https://evil.example", "sec_fetch_site": "cross-site"}
            assert (await get(role, "span=hour", cookie=cookie, **evil))[0] == 403
            role._sign_in.leave(token)
            assert (await get(role, "span=hour", cookie=cookie))[0] == 401

    make_site(1).run(story)


# --- the file -------------------------------------------------------------------------------------


def fed(folder: Path, first_s: int = 0, seconds: int = 3) -> CurveFile:
    file = CurveFile(folder, CLUSTER, LOG)
    file.remember()
    for second in range(first_s, first_s + seconds):
        file.on_poll(read(healthy()), now_ms=second * 1000, wall_ms=(NOON_S + second) * 1000)
    return file


def kept(folder: Path) -> list[int]:
    return [second - NOON_S for second in sorted(values(folder, CLUSTER))]


def test_a_file_that_is_damaged_or_of_another_version_is_set_aside_and_begun_anew(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, aside = tmp_path / CURVES_FILE, tmp_path / (CURVES_FILE + ASIDE)

    def other_version(raw: bytearray) -> None:
        raw[offset_of(CURVES_HEAD, "version")] = 0

    def flipped(raw: bytearray) -> None:
        raw[offset_of(CURVES_HEAD, "curves")] ^= 1

    def cut(raw: bytearray) -> None:
        del raw[5000:]

    for round_, (damage, words) in enumerate(
        ((other_version, "version 0, not 1"), (flipped, "head is damaged"), (cut, "has 5000 bytes"))
    ):
        asyncio.run(fed(tmp_path, 10 * round_).close())
        raw = bytearray(path.read_bytes())
        damage(raw)
        path.write_bytes(raw)
        caplog.clear()
        file = fed(tmp_path, 10 * round_ + 5)
        (line,) = caplog.messages
        assert words in line and line.endswith(f"set aside as {aside.name}, and curves begin anew")
        assert aside.read_bytes() == raw and not path.exists()
        asyncio.run(file.close())
        assert kept(tmp_path) == [10 * round_ + each for each in (5, 6, 7)]
    assert {each.name for each in tmp_path.iterdir()} == {path.name, aside.name}


def test_a_row_that_is_torn_is_a_gap(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    asyncio.run(fed(tmp_path).close())
    path = tmp_path / CURVES_FILE
    raw = bytearray(path.read_bytes())
    size = CURVES_SECOND.itemsize
    at = SECONDS_AT + (NOON_S + 1) % HOUR_S * size
    raw[at + size // 2 : at + size] = bytes(size // 2)
    path.write_bytes(raw)
    file = fed(tmp_path, 2, 1)
    assert caplog.messages == [f"{path}: 1 rows are damaged: they are gaps of the curves"]
    asyncio.run(file.close())
    assert kept(tmp_path) == [0, 2]


def test_what_cannot_be_written_is_told_once_and_written_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / CURVES_FILE
    path.mkdir()
    file = fed(tmp_path)

    async def story() -> None:
        for _ in range(3):
            await file.keep()
        (line,) = caplog.messages
        assert line.startswith(f"curves are kept in memory alone: {path}: Is a directory")
        path.rmdir()
        await file.keep()
        assert kept(tmp_path) == [0, 1, 2]
        await file.close()

    asyncio.run(story())
    assert len(caplog.messages) == 1


def test_a_disk_that_hangs_delays_no_poll_and_nothing_of_it_is_lost(tmp_path: Path) -> None:
    file, hangs = fed(tmp_path), threading.Event()

    async def story() -> None:
        file._thread.submit(hangs.wait)  # as a write that does not come back
        keeping = asyncio.create_task(file.keep())
        await asyncio.sleep(0)
        for second in range(3, 6):
            file.on_poll(read(healthy()), now_ms=second * 1000, wall_ms=(NOON_S + second) * 1000)
        assert not keeping.done() and not (tmp_path / CURVES_FILE).exists()
        keeping.cancel()  # the console is told to end meanwhile
        await asyncio.gather(keeping, return_exceptions=True)
        hangs.set()
        await file.close()
        assert kept(tmp_path) == [0, 1, 2, 3, 4, 5]

    asyncio.run(story())


def test_it_is_written_again_and_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(curve_file, "EVERY_S", 0.01)
    file = fed(tmp_path)

    async def story() -> None:
        going = asyncio.create_task(file.keep_on())
        for seconds in (3, 4):
            await until(lambda seconds=seconds: (tmp_path / CURVES_FILE).exists()
                        and len(kept(tmp_path)) == seconds)  # fmt: skip
            file.on_poll(read(healthy()), now_ms=9000, wall_ms=(NOON_S + seconds) * 1000)
        going.cancel()
        await asyncio.gather(going, return_exceptions=True)
        await file.close()

    asyncio.run(story())
