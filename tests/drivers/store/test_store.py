"""A store keeps whole batches through kill -9, in key order, within its size."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.base.errors import StorageError, StoreFull
from appliance.base.limits import KIB, MIB
from appliance.drivers.store.batch import Batch
from appliance.drivers.store.store import Store
from tests.patience import HUNG_S

REPO = Path(__file__).resolve().parents[3]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store(tmp_path / "store", ["log", "state"], 4 * MIB)
    yield opened
    opened.close()


def key(number: int) -> bytes:
    return number.to_bytes(8, "big")


def everything(store: Store, database: str) -> list[tuple[bytes, bytes]]:
    with store.reading() as reading:
        return list(reading.items(database))


def test_a_batch_is_seen_whole_and_by_its_database_alone(store: Store) -> None:
    store.write(Batch().put("log", b"a", b"1").put("state", b"a", b"2").put("log", b"b", b""))
    assert store.get("log", b"a") == b"1"
    assert store.get("log", b"b") == b""
    assert store.get("state", b"a") == b"2"
    assert store.get("state", b"b") is None


def test_later_changes_of_a_batch_see_the_earlier_ones(store: Store) -> None:
    store.write(Batch().put("log", b"a", b"1").delete("log", b"a").put("log", b"a", b"2"))
    store.write(
        Batch().delete("log", b"absent").put("log", b"b", b"3").delete_range("log", b"b", None)
    )
    assert everything(store, "log") == [(b"a", b"2")]


def test_rows_put_together_stand_where_they_stand_among_the_others(store: Store) -> None:
    rows = [(b"a", b"1"), (b"b", b""), (b"c", b"3")]
    batch = Batch().put("log", b"a", b"0").put_all("log", rows).delete("log", b"b")
    store.write(batch.put_all("state", []).put("log", b"c", b"4"))
    assert everything(store, "log") == [(b"a", b"1"), (b"c", b"4")]
    with pytest.raises(StoreFull):
        store.write(Batch().put_all("log", [(key(n), bytes(MIB)) for n in range(8)]))
    assert everything(store, "log") == [(b"a", b"1"), (b"c", b"4")]


def test_many_keys_are_looked_up_and_removed_at_once(store: Store) -> None:
    store.write(Batch().put_all("log", [(key(n), bytes([n])) for n in range(9)]))
    with store.reading() as reading:
        wanted = [key(n) for n in (2, 5, 8, 9)]
        assert reading.get_all("log", wanted) == {key(n): bytes([n]) for n in (2, 5, 8)}
        assert reading.get_all("state", wanted) == reading.get_all("log", []) == {}
        assert reading.keys("log", key(3), key(8), 3) == [key(n) for n in (3, 4, 5)]
        assert reading.keys("log", key(7), key(8), 3) == [key(7)]
        assert reading.keys("log", key(7), key(99), 9) == [key(7), key(8)]
        assert reading.keys("log", key(9), key(99), 9) == reading.keys("state", key(0), key(9), 9)
        get = reading.getter("log")
        assert [get(key(n)) for n in (5, 9)] == [b"\x05", None]
    batch = Batch().put("log", key(20), b"").delete_all("log", [key(n) for n in (1, 2, 20, 30)])
    store.write(batch.put("log", key(2), b"again").delete_all("state", []))
    assert [k for k, _ in everything(store, "log")] == [key(n) for n in (0, *range(2, 9))]
    assert store.get("log", key(2)) == b"again"


CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(0, 30), st.binary(max_size=40)),
        st.tuples(st.just("delete"), st.integers(0, 30), st.none()),
        st.tuples(st.just("range"), st.integers(0, 30), st.one_of(st.none(), st.integers(0, 31))),
    ),
    max_size=30,
)


@settings(max_examples=60)
@given(changes=CHANGES, first=st.integers(0, 31), end=st.one_of(st.none(), st.integers(0, 32)))
def test_ranges_and_order_are_those_of_a_sorted_dictionary(
    tmp_path_factory: pytest.TempPathFactory, changes, first, end
) -> None:
    store = Store(tmp_path_factory.mktemp("store"), ["log"], MIB)
    model: dict[bytes, bytes] = {}
    batch = Batch()
    for kind, number, value in changes:
        if kind == "put":
            batch.put("log", key(number), value)
            model[key(number)] = value
        elif kind == "delete":
            batch.delete("log", key(number))
            model.pop(key(number), None)
        else:
            limit = None if value is None else key(value)
            batch.delete_range("log", key(number), limit)
            for name in list(model):
                if name >= key(number) and (limit is None or name < limit):
                    del model[name]
    store.write(batch)
    limit = None if end is None else key(end)
    wanted = [
        (name, model[name])
        for name in sorted(model)
        if name >= key(first) and (limit is None or name < limit)
    ]
    with store.reading() as reading:
        assert list(reading.items("log", key(first), limit)) == wanted
        assert list(reading.items_backwards("log", limit, key(first))) == wanted[::-1]
        assert list(reading.items_backwards("log")) == sorted(model.items(), reverse=True)
        assert reading.count("log") == len(model)
    store.close()


def test_a_reader_keeps_its_moment_while_another_thread_writes(store: Store) -> None:
    store.write(Batch().put("log", b"a", b"old"))
    with store.reading() as reading:
        writer = threading.Thread(target=store.write, args=(Batch().put("log", b"a", b"new"),))
        writer.start()
        writer.join(HUNG_S)
        assert not writer.is_alive()
        assert reading.get("log", b"a") == b"old"
    assert store.get("log", b"a") == b"new"


def test_a_full_map_changes_nothing_and_is_mended_by_enlarging(tmp_path: Path) -> None:
    store = Store(tmp_path / "store", ["log"], 256 * KIB)
    store.write(Batch().put("log", key(0), b"kept"))
    big = Batch()
    for number in range(1, 65):
        big.put("log", key(number), bytes(8 * KIB))
    with pytest.raises(StoreFull) as raised:
        store.write(big)
    assert raised.value.map_size == 256 * KIB
    assert everything(store, "log") == [(key(0), b"kept")]
    store.enlarge(2 * MIB)
    store.write(big)
    assert len(everything(store, "log")) == 65
    assert store.figures().map_size == 2 * MIB
    store.close()
    again = Store(tmp_path / "store", ["log"], 2 * MIB)
    assert len(everything(again, "log")) == 65
    again.close()


def test_enlarging_waits_for_readers(store: Store) -> None:
    entered, leave = threading.Event(), threading.Event()

    def read() -> None:
        with store.reading():
            entered.set()
            leave.wait(HUNG_S)

    reader = threading.Thread(target=read)
    reader.start()
    assert entered.wait(HUNG_S)
    grower = threading.Thread(target=store.enlarge, args=(8 * MIB,))
    grower.start()
    assert store.map_size == 4 * MIB
    leave.set()
    grower.join(HUNG_S)
    reader.join(HUNG_S)
    assert store.map_size == 8 * MIB


def test_freed_pages_are_used_again(store: Store) -> None:
    def fill(turn: int) -> None:
        batch = Batch().delete_range("log", b"", None)
        for number in range(50):
            batch.put("log", key(turn * 50 + number), bytes(4 * KIB))
        store.write(batch)

    for turn in range(4):
        fill(turn)
    settled = store.figures()
    assert settled.free_size > 0
    for turn in range(4, 40):
        fill(turn)
    after = store.figures()
    assert after.used_size <= settled.used_size * 1.2
    assert after.entries == {"log": 50, "state": 0}


def test_a_folder_that_holds_something_else_is_refused_with_a_remedy(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    folder.mkdir()
    (folder / "data.mdb").write_bytes(b"no store" * 4096)
    with pytest.raises(StorageError, match="correct the path"):
        Store(folder, ["log"], MIB)
    with pytest.raises(StorageError, match="cannot be opened"):
        Store(tmp_path / "absent", ["log"], MIB, read_only=True)
    assert not (tmp_path / "absent").exists()


def test_a_second_process_may_read_beside_the_writer(store: Store, tmp_path: Path) -> None:
    store.write(Batch().put("log", b"a", b"1"))
    code = (
        "from pathlib import Path; from appliance.drivers.store.store import Store\n"
        f"store = Store(Path({str(tmp_path / 'store')!r}), ['log'], 1 << 20, read_only=True)\n"
        "print(store.get('log', b'a').decode())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        timeout=HUNG_S,
        env={**os.environ, "PYTHONPATH": str(REPO)},
    )
    assert done.stdout.strip() == "1"


READER = """
import sys
import threading
from pathlib import Path
from appliance.drivers.store.store import Store
store = Store(Path(sys.argv[1]), ["log"], 1 << 20, read_only=True)
print("open", flush=True)
for line in sys.stdin:
    seen = []
    def count():
        with store.reading() as reading:
            seen.append(reading.count("log"))
    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(*seen, flush=True)
"""


def test_a_reader_in_another_process_follows_a_store_that_was_enlarged(
    store: Store, tmp_path: Path
) -> None:
    """As a command does that looks at a store beside its running role; in several threads."""
    store.write(Batch().put("log", key(0), b"first"))
    reader = subprocess.Popen(
        [sys.executable, "-c", READER, str(tmp_path / "store")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(REPO)},
    )
    assert reader.stdin is not None and reader.stdout is not None
    try:
        assert reader.stdout.readline() == "open\n"
        for step in range(1, 4):
            store.enlarge((4 + 4 * step) * MIB)
            batch = Batch()
            for number in range(step * 3000, step * 3000 + 3000):
                batch.put("log", key(number), bytes(1000))
            store.write(batch)
            reader.stdin.write("count\n")
            reader.stdin.flush()
            assert reader.stdout.readline().split() == [str(1 + 3000 * step)] * 4
    finally:
        reader.kill()
        reader.wait()
        reader.stdin.close()
        reader.stdout.close()


WRITER = """
import sys
from pathlib import Path
from appliance.drivers.store.batch import Batch
from appliance.drivers.store.store import Store
store = Store(Path(sys.argv[1]), ["log"], 1 << 24)
number = int(sys.argv[2])
while True:
    batch = Batch()
    for part in range(10):
        batch.put("log", (number * 10 + part).to_bytes(8, "big"), bytes(500))
    store.write(batch)
    print(number, flush=True)
    number += 1
"""


def test_batches_confirmed_before_a_kill_are_there_and_none_is_half_there(tmp_path: Path) -> None:
    confirmed = -1
    for life in range(5):
        process = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path / "store"), str(confirmed + 1)],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(REPO)},
        )
        assert process.stdout is not None
        for line, _ in zip(process.stdout, range(7 + life), strict=False):
            confirmed = int(line)
        process.send_signal(signal.SIGKILL)
        confirmed = max([confirmed, *(int(line) for line in process.stdout if line.endswith("\n"))])
        process.wait(HUNG_S)
        process.stdout.close()
        store = Store(tmp_path / "store", ["log"], 1 << 24)
        held = [int.from_bytes(name, "big") for name, _ in everything(store, "log")]
        store.close()
        assert held == list(range(len(held)))
        assert len(held) % 10 == 0
        assert len(held) >= (confirmed + 1) * 10
        confirmed = len(held) // 10 - 1
