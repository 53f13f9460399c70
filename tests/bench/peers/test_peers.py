"""The generators' protocols, bars and counting; `make soak` runs the bench itself in short."""

import subprocess
import sys
from typing import Any

import pytest

from tests.bench.peers import http2, table
from tests.bench.peers.etcd import field, fields_of, varint
from tests.bench.peers.run import FLUSH, resumed
from tests.patience import HUNG_S


def rows(product: str, **rates: Any) -> list[dict[str, Any]]:
    """One round at each depth; `rates` change what is measured there."""
    made = []
    for depth in (1, 16, 256, 2048):
        row = {"kind": "acknowledged", "product": product, "in_flight": depth}
        row |= {"per_s": 1000 * depth, "p50_ms": 1.0, "p99_ms": 2.0, "cpu_us": 40.0}
        made.append(row | rates)
    for listeners in (100, 1000):
        rate = rates.get("per_s", 2_000_000)
        made.append({"kind": "fan_out", "product": product, "listeners": listeners, "per_s": rate})
    return made


def missed(**ours: Any) -> list[str]:
    faster = {"p99_ms": 1.5} | ours
    found = table.summary(rows("TigerChat", **faster) + rows("etcd 3.4", per_s=500))
    return table.missed(found)


def test_a_product_that_reaches_every_bar_misses_none() -> None:
    assert missed() == []


@pytest.mark.parametrize(
    ("ours", "words"),
    [
        ({"per_s": 300}, "of etcd's rate"),
        ({"p50_ms": 1.7}, "p50 1.70 of etcd's"),
        ({"p99_ms": 2.0}, "p99 2.0 ms"),
        ({"cpu_us": 46.0}, "46.0 µs of CPU"),
        ({"per_s": 1_000_000}, "1 to 1000: 1000000 deliveries/s"),
    ],
)
def test_each_bar_that_is_missed_is_told(ours: dict[str, Any], words: str) -> None:
    assert any(words in line for line in missed(**ours))


def test_medians_quartiles_and_ratios_are_those_of_all_rounds() -> None:
    measured = [row for rate in (100, 300, 200) for row in rows("TigerChat", per_s=rate)]
    found = table.summary(measured + rows("etcd 3.4", per_s=50))
    ours = table.find(found, {"kind": "acknowledged", "in_flight": 16}, "TigerChat")
    etcd = table.find(found, {"kind": "acknowledged", "in_flight": 16}, "etcd 3.4")
    assert ours is not None and etcd is not None
    assert (ours["rounds"], ours["per_s"], ours["quartiles"]) == (3, 200, [100, 300])
    assert etcd["ratio"] == 0.25
    assert "| etcd 3.4 | 16 | 50 (50 to 50) |" in table.text(found)
    assert table.picture(found).count("<rect") == 1 + 2 + 2 * 4


def test_flushes_are_counted_once_though_strace_prints_them_in_two_pieces() -> None:
    text = """7 fdatasync(5 <unfinished ...>
8 pwritev2(9, [{iov_len=4096}], 1, 0, RWF_DSYNC) = 4096
7 <... fdatasync resumed>) = 0
8 pwritev2(9, [{iov_len=4096}], 1, 0, 0) = 4096
8 fsync(4) = -1 EIO (Input/output error)
"""
    assert len(FLUSH.findall(resumed(text))) == 2


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


@pytest.mark.soak
def test_three_nodes_of_each_product_are_measured_in_the_quick_form() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.bench.peers.run", "--quick"],
        capture_output=True,
        text=True,
        timeout=10 * HUNG_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for product in ("TigerChat", "etcd 3.4", "Redis 7, WAIT 1", "NATS 2.9, R3"):
        assert f"| {product} | 64 | " in done.stdout
