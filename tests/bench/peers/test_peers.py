"""The generators' protocols, bars, counting and what is written; and the bench itself, in short."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import psutil
import pytest

from appliance.formats import record
from tests.bench.peers import http2, page, proofs, table
from tests.bench.peers.etcd import field, fields_of, varint
from tests.bench.peers.flushes import flushes_in, synced_by_open
from tests.bench.peers.foreign import (
    FOREIGN_CORES_MAX,
    Moment,
    foreign_cores,
    that_count,
    until_undisturbed,
)
from tests.bench.peers.generator import Generator, body_of, name_of, seen_in
from tests.bench.peers.generator import told as told_name
from tests.bench.peers.ledger import NAME, Ledger, prefix_of, told
from tests.bench.peers.loop import PeerFailed
from tests.bench.peers.picture import TOP, picture
from tests.bench.peers.run import HISTORY, PAGE, Plan, conclude, options, told_apart
from tests.bench.peers.tigerchat import TigerChat
from tests.bench.peers.trees import OURS, SETTINGS, Offers, Tree, offers_of
from tests.patience import HUNG_S

Row = dict[str, Any]
SVG = "{http://www.w3.org/2000/svg}"
NEWEST = ["--no-objects", "--no-farm", "--brief"]


def rows(product: str, **rates: Any) -> list[Row]:
    """One round at each depth; `rates` change what is measured there."""
    made: list[Row] = []
    for depth in (1, 16, 256, 2048):
        row: Row = {"kind": "acknowledged", "product": product, "in_flight": depth}
        row |= {"per_s": 1000 * depth, "p50_ms": 1.0, "p99_ms": 2.0, "cpu_us": 40.0}
        made.append(row | rates)
    for listeners in (100, 1000):
        row = {"kind": "fan_out", "product": product, "listeners": listeners}
        made.append(row | {"per_s": 2_000_000, "cpu_us": 1.0} | rates)
    made.append({"kind": "idle", "product": product, "cpu_percent": 30.0})
    return made


def bars_missed(etcd: Row, tree: Row | None = None) -> list[str]:
    measured = rows(OURS) + rows("etcd 3.4", per_s=500, **etcd)
    if tree is not None:
        measured += rows("TigerChat 1a2b3c4", **tree)
    return table.missed(table.summary(measured))


def test_a_product_that_reaches_every_bar_misses_none() -> None:
    assert bars_missed({}) == []
    assert bars_missed({}, tree={}) == []  # equal to itself


@pytest.mark.parametrize(
    ("kind", "key", "least"),
    [
        *[("acknowledged", depth, least) for depth, least in table.RATE_MIN.items()],
        *[("fan_out", count, least) for count, least in table.FAN_OUT_MIN.items()],
    ],
)
def test_each_bar_beside_etcd_is_held_at_its_limit_and_missed_just_below(
    kind: str, key: int, least: float
) -> None:
    for ours, held in ((least, True), (least - 0.01, False)):
        measured = rows(OURS, per_s=1_000_000) + rows("etcd 3.4", per_s=1000)
        name = "in_flight" if kind == "acknowledged" else "listeners"
        for row in measured:
            if row["kind"] == kind and row.get(name) == key and row["product"] == OURS:
                row["per_s"] = round(1000 * ours)
        missed = table.missed(table.summary(measured))
        assert (missed == []) == held and len(missed) <= 1
        assert held or f" is {ours:.2f} of etcd 3.4's, at least {least}" in missed[0]


@pytest.mark.parametrize(
    ("tree", "words"),
    [
        ({"per_s": 3_000_000}, ": rate is "),
        ({"cpu_us": 0.5}, ": CPU is "),
    ],
)
def test_an_older_tree_that_is_faster_or_cheaper_is_told(tree: Row, words: str) -> None:
    missed = bars_missed({}, tree)
    assert len(missed) == 6 and all(words in line and "1a2b3c4" in line for line in missed)


def test_a_bar_of_which_nothing_was_measured_is_missed() -> None:
    measured = [*rows(OURS), *(row | {"disturbed": True} for row in rows("etcd 3.4"))]
    found = table.summary(measured)
    assert "| etcd 3.4 | 16 in flight: rate | not measured | at least 0.95 | **missed** |" in (
        table.text(found)
    )
    missed = table.missed(found)
    assert len(missed) == 6 and all("nothing was measured undisturbed" in line for line in missed)


def test_medians_quartiles_and_ratios_are_those_of_undisturbed_rounds() -> None:
    measured = [row for rate in (100, 300, 200) for row in rows(OURS, per_s=rate)]
    measured += rows(OURS, per_s=9_999, disturbed=True) + rows("etcd 3.4", per_s=50)
    found = table.summary(measured)
    like = {"kind": "acknowledged", "in_flight": 16}
    ours = table.find(found, like, OURS)
    assert ours is not None
    assert (ours["rounds"], ours["disturbed"]) == (3, 1)
    assert (ours["per_s"], ours["quartiles"]) == (200, [100, 300])
    assert table.ratio(found, like, "etcd 3.4", "per_s") == 4.0
    shown = table.text(found)
    assert "| etcd 3.4 | 16 | 50 (50 to 50) | 1.0 | 2.0 | 40.0 |  | 4.00 |" in shown
    assert "| TigerChat | idle |  |  |  | 30.0 % of a core |  |  |" in shown
    assert "| etcd 3.4 | 16 in flight: rate | 4.00 | at least 0.95 | held |" in shown


def test_a_kind_of_round_that_was_always_disturbed_shows_no_figure() -> None:
    flushes = {"kind": "flushes", "product": OURS, "in_flight": 16, "for_a_message": 0.0}
    measured = [row | {"disturbed": True} for row in rows(OURS, per_s=777)]
    found = table.summary([*measured, flushes])
    assert "| TigerChat | 16 | all 1 disturbed |  |  |  | 0.0 |  |" in table.text(found)
    assert "777" not in table.text(found) + picture(found)


# --- who else took the cores


def moments(*foreign: float) -> Iterator[Moment]:
    """Clocks around measurements of two seconds, in each of which others had so many cores."""
    now = Moment(0.0, 0.0, 0.0)
    for cores in foreign:
        yield now
        now = Moment(now.at + 2, now.busy + 3 + 2 * cores, now.own + 3)
        yield now


@pytest.mark.parametrize(
    ("foreign", "marks"),
    [
        ((0.0,), [False]),
        ((FOREIGN_CORES_MAX,), [False]),
        ((0.26, 0.0), [True, False]),
        ((0.3, 1.0, 0.25), [True, True, False]),
        ((1.0, 1.0, 1.0), [True, True, True]),
    ],
)
def test_a_disturbed_measurement_is_marked_and_made_again_so_many_times_at_most(
    foreign: tuple[float, ...], marks: list[bool]
) -> None:
    clocks = moments(*foreign)
    found = until_undisturbed(lambda: {"per_s": 1}, lambda: next(clocks), tries=3)
    assert [row["disturbed"] for row in found] == marks
    assert [row["foreign_cores"] for row in found] == [round(f, 2) for f in foreign]
    assert next(clocks, None) is None
    assert len(that_count(found)) == marks.count(False)


def test_what_the_bench_itself_takes_is_not_foreign() -> None:
    assert foreign_cores(Moment(1, 10, 5), Moment(3, 14, 9)) == 0
    assert foreign_cores(Moment(1, 10, 5), Moment(3, 14, 8)) == 0.5
    assert foreign_cores(Moment(1, 10, 5), Moment(3, 13.9, 9)) == 0  # clocks of two kinds


# --- what a whole run writes


LINE: Row = {
    "time": "2026-11-28T12:00:00Z",
    "commit": "1a2b3c4",
    "machine": {"cores": 2, "model": "M"},
    "missed": [],
    "proofs": ["TigerChat: 1.98 flushes"],
    "rows": table.summary(rows(OURS) + rows("etcd 3.4", per_s=500)),
}


def test_a_whole_run_fills_the_place_between_the_marks_and_adds_a_line(tmp_path: Path) -> None:
    text, history = tmp_path / "page.md", tmp_path / "history.jsonl"
    (tmp_path / "pictures").mkdir()
    text.write_text(f"# Before\n\n{page.BEGIN}\nold\n{page.END}\n\nAfter\n")
    for time in ("first", "second"):
        page.write(LINE | {"time": time}, history=history, page=text)
    found = text.read_text()
    assert found.startswith(f"# Before\n\n{page.BEGIN}\nsecond, commit 1a2b3c4: 2 cores of M.")
    assert found.endswith(f"- TigerChat: 1.98 flushes\n{page.END}\n\nAfter\n")
    assert "old" not in found and "first" not in found
    assert f"({page.PICTURE})" in found and table.text(LINE["rows"]) in found
    assert (tmp_path / page.PICTURE).read_text() == picture(LINE["rows"])
    lines = [json.loads(line) for line in history.read_text().splitlines()]
    assert [line["time"] for line in lines] == ["first", "second"]


@pytest.mark.parametrize("broken", ["", page.BEGIN, f"{page.END} {page.BEGIN}", 2 * page.BEGIN])
def test_a_page_without_a_place_is_refused_and_nothing_is_written(
    broken: str, tmp_path: Path
) -> None:
    text, history = tmp_path / "page.md", tmp_path / "history.jsonl"
    text.write_text(broken)
    with pytest.raises(page.PageBroken, match="must have"):
        page.write(LINE, history=history, page=text)
    assert [path.name for path in tmp_path.iterdir()] == ["page.md"]
    assert text.read_text() == broken


def test_the_page_of_this_tree_has_a_place() -> None:
    assert page.filled(PAGE.read_text(), "found").count("\nfound\n") == 1


def test_the_picture_has_a_panel_for_each_kind_of_round_and_a_bar_for_each_product() -> None:
    found = table.summary(rows(OURS) + rows("R & D <3>", per_s=500))
    drawing = ElementTree.fromstring(picture(found))
    panels = drawing.findall(f"{SVG}g")
    assert [panel.findtext(f"{SVG}text") for panel in panels] == [
        *[f"{depth:,} in flight, messages/s" for depth in (1, 16, 256, 2048)],
        *[f"1 to {count:,} listeners, deliveries/s" for count in (100, 1000)],
    ]
    width, height = (float(drawing.attrib[name]) for name in ("width", "height"))
    for panel in panels:
        x, y = map(float, re.findall(r"\d+", panel.attrib["transform"]))
        bars = panel.findall(f"{SVG}rect")
        assert len(bars) == 2
        for bar in bars:
            left, top, wide, tall = (float(bar.attrib[n]) for n in ("x", "y", "width", "height"))
            assert 0 <= x + left and x + left + wide <= width
            assert y + TOP <= y + top and y + top + tall <= height
    one = panels[0].findall(f"{SVG}rect")
    assert float(one[0].attrib["height"]) == pytest.approx(
        2 * float(one[1].attrib["height"]), abs=0.2
    )


@pytest.mark.parametrize(
    ("words", "whole"),
    [
        ("", True),
        ("--tree .", True),
        ("--rounds 6 --seconds 4", True),
        ("--quick", False),
        ("--rounds 4", False),
        ("--seconds 1", False),
        ("--only tiger --only etcd", False),
        ("--in-flight 16", False),
        ("--listeners 100", False),
    ],
)
def test_only_a_whole_run_is_judged_and_written(words: str, whole: bool) -> None:
    assert Plan(options(words.split())).whole == whole


def test_what_is_no_whole_run_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    history, text = tmp_path / "history.jsonl", tmp_path / "page.md"
    (tmp_path / "pictures").mkdir()
    text.write_text(f"{page.BEGIN}\n{page.END}\n")
    monkeypatch.setattr("tests.bench.peers.run.HISTORY", history)
    monkeypatch.setattr("tests.bench.peers.run.PAGE", text)
    measured = rows(OURS) + rows("etcd 3.4")
    assert conclude(measured, [], [], whole=False) == 0  # slower, and no bar is asked
    assert "not a whole run" in capsys.readouterr().out
    assert not history.exists()
    assert conclude(measured, [], ["one is lost"], whole=True) == 1
    (line,) = map(json.loads, history.read_text().splitlines())
    assert line["missed"][0] == "one is lost" and len(line["missed"]) > 1
    assert line["spread"]["TigerChat, 16"] == [16_000] * 3
    assert "| TigerChat | 16 |" in text.read_text()


# --- another checkout


def offers(**changed: Any) -> Offers:
    everything: Row = {
        "top": str(Tree().top),
        "settings": [*SETTINGS, "index"],
        "format": ["--nodes", "--brief", "--farm", "--no-farm", "--no-objects"],
        "start": ["--quiet", "--unpinned"],
    }
    return offers_of(Tree(), everything | changed)


def test_a_checkout_is_asked_for_no_more_than_it_offers() -> None:
    place = Path("/site")
    known = offers().words_of_format(place, 7000, brief=True)
    assert known == [*"format --local /site --nodes 3 --ports 7000".split(), *NEWEST]
    assert offers().words_of_format(place, 7000, brief=False) == known[:-1]
    old = offers(settings=["index", "device_rate", "client_tls"], format=[], start=["--quiet"])
    assert old.words_of_format(place, 7000, brief=True) == known[: -len(NEWEST)]
    assert old.chosen_settings() == {"device_rate": 10_000_000, "client_tls": False}
    assert old.words_of_start(place) == ["start", "--node-folder", "/site", "--quiet"]
    assert offers().chosen_settings() == SETTINGS
    with pytest.raises(PeerFailed, match="and runs /elsewhere"):
        offers(top="/elsewhere")


def test_this_tree_offers_all_that_a_site_of_the_bench_wants(tmp_path: Path) -> None:
    found = offers_of(Tree(), Generator(tmp_path).offers())
    assert found.chosen_settings() == SETTINGS
    assert found.words_of_format(tmp_path, 7000, brief=True)[-len(NEWEST) :] == NEWEST
    assert found.words_of_start(tmp_path)[-2:] == ["--quiet", "--unpinned"]


def test_a_tree_runs_its_own_code_by_its_own_interpreter(tmp_path: Path) -> None:
    with pytest.raises(PeerFailed, match="no checkout"):
        Tree(tmp_path)
    package = tmp_path / "appliance"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text("import sys\nprint('old', *sys.argv[1:])\n")
    tree = Tree(tmp_path)
    assert tree.python == sys.executable and tree.run(["version"]) == "old version\n"
    assert tree.name == f"TigerChat {tmp_path.name}" and Tree().name == OURS
    (package / "__main__.py").write_text("raise SystemExit('refused')\n")
    with pytest.raises(PeerFailed, match="`format` failed: refused"):
        tree.run(["format", "--local", "x"])
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    own = tmp_path / ".venv" / "bin" / "python"
    own.symlink_to(sys.executable)
    assert Tree(tmp_path).python == str(own)


def test_a_tree_is_called_by_its_commit(tmp_path: Path) -> None:
    (tmp_path / "appliance").mkdir()
    (tmp_path / "appliance" / "__main__.py").touch()
    for words in ("init -q", "add .", "-c user.name=n -c user.email=e commit -q -m one"):
        subprocess.run(["git", *words.split()], cwd=tmp_path, check=True)
    name = Tree(tmp_path).name
    assert re.fullmatch(r"TigerChat [0-9a-f]{7,}", name)
    (tmp_path / "appliance" / "__main__.py").write_text("1\n")
    assert Tree(tmp_path).name == f"{name}-dirty"
    assert table.trees_of([{"product": OURS}, {"product": name}]) == [name]
    told_apart([Tree(), Tree(tmp_path)])
    for twice in (Tree(), Tree(tmp_path)):
        with pytest.raises(PeerFailed, match="once more"):
            told_apart([Tree(), Tree(tmp_path), twice])


@pytest.mark.parametrize(
    ("does", "words"), [("exec sleep 1000", "`offers` takes too long"), ("exit 1", "has ended")]
)
def test_a_generator_that_hangs_or_ends_fails_the_bench_and_is_gone(
    does: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.bench.peers.tigerchat.ANSWER_WITHIN_S", 1.0)
    tree, python = tmp_path / "tree", tmp_path / "tree" / ".venv" / "bin" / "python"
    for folder in (tree / "appliance", python.parent):
        folder.mkdir(parents=True)
    (tree / "appliance" / "__main__.py").touch()
    python.write_text(f"#!/bin/sh\necho said >&2\n{does}\n")
    python.chmod(0o755)
    product = TigerChat(Tree(tree), tmp_path / "site", 1, brief=True)
    try:
        with pytest.raises(PeerFailed, match=f"{words}(.|\n)*said"):
            product.start()
    finally:
        product.close()
    assert not [p for p in psutil.Process().children() if "1000" in p.cmdline()]


# --- what was acknowledged is looked up by name


def test_a_ledger_tells_by_name_what_is_not_found() -> None:
    ledger = Ledger()
    first, second = prefix_of(7, 0), prefix_of(7, 1)
    ledger.add(first, 3)
    ledger.add(second, 1)
    names = [b"%b%010d" % (first, number) for number in range(5)]  # more than was acknowledged
    assert NAME.findall(b"".join(names)) == names and ledger.size == 4
    assert ledger.lost([*names, names[0], b"%b%010d" % (second, 0)]) == []
    assert ledger.lost([*names[:1], *names[2:]]) == [names[1], b"%b%010d" % (second, 0)]
    assert told(ledger.lost([])) == (
        "0007-00-0000000000, 0007-00-0000000001, 0007-00-0000000002, 0007-01-0000000000"
    )


def test_a_record_is_known_by_the_name_in_its_body_wherever_it_lies() -> None:
    body = body_of(123, 2, 99, 256).encode()
    ids = {"room_id": b"r" * 16, "msg_id": b"m" * 16, "client_id": b"c" * 16, "author_id": 1}
    records = [
        record.encode(body=text, client_seq=seq, **ids)
        for text, seq in ((body, 1), (b"of somebody else", 2), (body, 5))
    ]
    found = seen_in(b"".join(records))
    assert found["name"].tolist() == name_of(123, 2, 99, np.array([1, 5])).tolist()
    assert told_name(int(found["name"][1])) == "round 123 sender 2 room 99 number 5"
    assert len(seen_in(records[1])) == 0


# --- nothing is loosened


STATUS: Row = {
    "op": 10,
    "nonce": 5 << 32 | 700,
    "sent": {"prepare": 500, "commit": 500, "reply": 9, "local_0x41": 9},
    "received": {"prepare_ok": 990, "request": 9, "local_0x40": 9},
    "dropped": {},
    "links": {"1": True, "2": True},
}


def proof(**changed: Any) -> Row:
    row: Row = {"product": OURS, "nodes": 3, "flushes": {1: 1.98}, "links": 5, "broken": 0}
    row |= {"frames": vars(proofs.frames_of([STATUS] * 3)), "peers": [("TLSv1.3", True)] * 3}
    return row | {k: row[k] | v if isinstance(v, dict) else v for k, v in changed.items()}


def test_counters_of_a_sound_run_show_nothing_loosened() -> None:
    row = proof()
    expected = {"signed": 2100, "sent": 3000, "received": 2970, "dropped": 0, "links": 6}
    assert row["frames"] == expected and proofs.loosened(row) == []
    assert "1.98 at 1; between replicas 3000 frames sent" in proofs.text(row)
    after = [STATUS | {"op": 60}] * 3
    assert proofs.flushes_of_prepares(297, [STATUS] * 3, after) == 1.98
    assert proofs.flushes_of_prepares(1, [STATUS] * 3, [STATUS] * 3) is None


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"flushes": {1: 1.0}}, "1.0 flushes a prepare"),
        ({"frames": {"received": 2700}}, "3000 frames sent, 2700 verified"),
        ({"frames": {"dropped": 1}}, "1 frames dropped"),
        ({"frames": {"signed": 1499}}, "1499 signed"),
        ({"frames": {"links": 5}}, "5 links between replicas"),
        ({"peers": [("TLSv1.3", True), (None, True)]}, "a stranger meets None"),
        ({"peers": [("TLSv1.3", False)]}, "not refused"),
        ({"broken": 1}, "1 of 5 links"),
    ],
)
def test_each_counter_that_shows_something_loosened_is_told(changed: Row, words: str) -> None:
    (line,) = proofs.loosened(proof(**changed))
    assert words in line


def test_flushes_are_counted_once_though_strace_prints_them_in_two_pieces() -> None:
    text = """7 fdatasync(5 <unfinished ...>
8 pwritev2(9, [{iov_len=4096}], 1, 0, RWF_DSYNC) = 4096
7 <... fdatasync resumed>) = 0
8 pwritev2(9, [{iov_len=4096}], 1, 0, 0) = 4096
8 fsync(4) = -1 EIO (Input/output error)
9 pwrite64(5, "\\1\\0 = 7 RWF_DSYNC"..., 4096, 8192) = 4096
9 pwrite64(6, "\\1\\0"..., 4096, 8192) = 4096
9 <... pwrite64 resumed>) = 4096
"""
    assert flushes_in(text, set()) == 2
    assert flushes_in(text, {(9, 6), (8, 5)}) == 3


def test_a_descriptor_that_flushes_each_write_is_known_by_its_flags(tmp_path: Path) -> None:
    plain = os.open(tmp_path / "a", os.O_CREAT | os.O_WRONLY)
    synced = os.open(tmp_path / "b", os.O_CREAT | os.O_WRONLY | os.O_DSYNC)
    try:
        found = set(synced_by_open(os.getpid()))
        assert (os.getpid(), synced) in found and (os.getpid(), plain) not in found
    finally:
        os.close(plain)
        os.close(synced)


# --- protocols of the generators


def test_a_protobuf_message_is_read_as_it_was_written() -> None:
    data = field(1, field(2, b"inner")) + b"\x20" + varint(300) + field(3, b"x" * 200)
    assert fields_of(data) == {1: field(2, b"inner"), 4: 300, 3: b"x" * 200}


class Exchange:
    """An HTTP/2 client, what it wrote, and what it heard."""

    def __init__(self) -> None:
        self.wrote = b""
        self.answers: list[tuple[int, bytes]] = []
        self.failures: list[str] = []
        self.client = http2.Http2Client(
            self.write, lambda stream, body: self.answers.append((stream, body)), self.fail
        )

    def write(self, data: bytes) -> None:
        self.wrote += data

    def fail(self, reason: str) -> None:
        self.failures.append(reason)


def test_answers_are_paired_with_calls_however_their_bytes_are_cut() -> None:
    exchange = Exchange()
    streams = exchange.client.call(b"headers", [b"one", b"two"])
    assert streams == [1, 3]
    data = b"".join(
        http2.frame(http2.HEADERS, http2.END_HEADERS, stream, b"\x88")
        + http2.frame(http2.DATA, 0, stream, http2.message(b"answer %d" % stream))
        + http2.frame(http2.HEADERS, http2.END_HEADERS | http2.END_STREAM, stream, b"")
        for stream in (3, 1)
    )
    for byte in data:
        exchange.client.on_bytes(bytes((byte,)))
    assert exchange.answers == [(3, b"answer 3"), (1, b"answer 1")] and not exchange.failures


def test_what_the_servers_window_has_no_room_for_waits_for_more() -> None:
    exchange = Exchange()
    exchange.client.call(b"h", [bytes(40_000), bytes(40_000)])
    before = len(exchange.wrote)
    assert 40_000 < before < 80_000
    more = http2.frame(http2.WINDOW_UPDATE, 0, 0, (20_000).to_bytes(4, "big"))
    exchange.client.on_bytes(more)
    assert len(exchange.wrote) - before == 9 + 5 + 40_000


@pytest.mark.parametrize(
    "frame",
    [
        http2.frame(http2.HEADERS, http2.END_HEADERS | http2.END_STREAM, 1, b"grpc-status 14"),
        http2.frame(http2.RST_STREAM, 0, 1, b"\0\0\0\x07"),
        http2.frame(http2.GOAWAY, 0, 0, bytes(8) + b"too many pings"),
    ],
)
def test_a_call_that_has_no_answer_fails_the_round(frame: bytes) -> None:
    exchange = Exchange()
    exchange.client.call(b"h", [b"one"])
    exchange.client.on_bytes(frame)
    assert len(exchange.failures) == 1 and not exchange.answers


# --- the bench itself


def measured(folder: Path, *words: str) -> str:
    """What a run of the bench says; it must end well, and leave nothing."""
    if os.geteuid() != 0:
        pytest.skip("only root may run what lies in a tree of Debian's packages")
    before = PAGE.read_bytes(), HISTORY.read_bytes() if HISTORY.exists() else b""
    done = subprocess.run(
        [sys.executable, "-m", "tests.bench.peers.run", "--quick", "--folder", folder, *words],
        cwd=PAGE.parents[1],
        capture_output=True,
        text=True,
        timeout=HUNG_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert list(folder.iterdir()) == []
    assert (PAGE.read_bytes(), HISTORY.read_bytes() if HISTORY.exists() else b"") == before
    return done.stdout


def found_of(said: str) -> dict[str, tuple[int, int]]:
    """Product -> messages that were found, messages that were acknowledged."""
    rows = re.findall(r"^(.+): (\d+) of (\d+) acknowledged messages found", said, re.MULTILINE)
    return {name: (int(found), int(acknowledged)) for name, found, acknowledged in rows}


def test_a_short_round_beside_etcd_finds_every_message_and_writes_nothing(tmp_path: Path) -> None:
    words = "--only TigerChat --only etcd --seconds 1 --in-flight 64 --listeners 5".split()
    said = measured(tmp_path, *words)
    found = found_of(said)
    assert set(found) == {OURS, "etcd 3.4"}
    assert all(count == wanted > 200 for count, wanted in found.values())
    for kind in ("kind acknowledged", "kind fan_out", "kind idle", "kind flushes"):
        assert f"{kind}  product TigerChat" in said and f"{kind}  product etcd 3.4" in said
    assert "TLSv1.3 at peer ports, 3 of 3 turn a stranger away" in said
    assert "not a whole run" in said


@pytest.mark.soak
def test_three_nodes_of_each_product_are_measured_in_the_quick_form(tmp_path: Path) -> None:
    tree, folder = tmp_path / "tree", tmp_path / "folder"
    folder.mkdir()
    subprocess.run(["git", "clone", "--quiet", "--shared", PAGE.parents[1], tree], check=True)
    said = measured(folder, "--tree", str(tree))
    products = (OURS, Tree(tree).name, "etcd 3.4", "Redis 7, WAIT 1", "NATS 2.9, R3")
    for product in products:
        assert f"| {product} | 64 | " in said
    assert found_of(said).keys() == set(products)
