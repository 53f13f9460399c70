"""`tigerchat inspect` against a volume whose every byte the test has put there, or broken."""

import json
import shutil
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from appliance.base.limits import MIB
from appliance.base.signature import SigningKey
from appliance.commands import inspect as inspect_module
from appliance.commands.inspect import command
from appliance.drivers.host.node_folder import NodeFolder, open_node, read_seed
from appliance.drivers.nvme.reader import VolumeReader
from appliance.formats import envelope, record, session, snapshot
from appliance.formats.geometry import PRODUCTION, RECORD_SIZE, SMALL
from appliance.formats.segment import encode_footer, leaf_id
from tests.commands.conftest import Sentence, Tigerchat
from tests.drivers.nvme.rot import flip

ROOMS = [bytes([room + 1]) * 16 for room in range(3)]
CLIENT = bytes(range(16))
SEALED, OPEN = SMALL.segment_records, 37


class Prepared:
    """A small node with a WAL of two prepares and a sealed and an open segment of known records."""

    def __init__(self, node: NodeFolder) -> None:
        self.node = node
        self.volume = node.volume(0)
        self.data = self.volume / "data"
        self.records = committed_records(SEALED + OPEN)
        self.prepares: list[tuple[envelope.Header, bytes]] = []

    def put(self, address: int, raw: bytes) -> None:
        with open(self.data, "r+b") as file:
            file.seek(address)
            file.write(raw)

    def flip(self, address: int) -> None:
        flip(self.data, address)

    def prepare(self, op: int, count: int) -> None:
        """Append a prepare to the ring, prepare and witness."""
        parent = self.prepares[-1][0].digest if self.prepares else self.root.digest
        records = b"".join(fresh_record(op * 100 + index) for index in range(count))
        block = session.SessionBlock(CLIENT, 1, count, bytes(16), bytes(16), bytes(32))
        body = session.encode(block) + records
        header = envelope.make(
            envelope.PREPARE,
            cluster=self.node.site.cluster,
            shard=0,
            operation=16,
            op=op,
            area=parent + (1_000_000 + op).to_bytes(8, "little"),
            body=body,
        )
        self.put(self.prepare_address(op), header.raw + body)
        self.put(self.witness_address(op), header.raw)
        self.prepares.append((header, body))

    @property
    def root(self) -> envelope.Header:
        return envelope.root(self.node.site.cluster, 0)

    @staticmethod
    def prepare_address(op: int) -> int:
        return SMALL.wal_prepares_offset + op % SMALL.slot_count * SMALL.message_size_max

    @staticmethod
    def witness_address(op: int) -> int:
        return SMALL.wal_headers_offset + op % SMALL.slot_count * 4096

    def put_segments(self) -> None:
        sealed = b"".join(self.records[:SEALED])
        step = SMALL.records_max * RECORD_SIZE
        leaves = [leaf_id(sealed[at : at + step]) for at in range(0, len(sealed), step)]
        footer = encode_footer(
            sealed,
            cluster=self.node.site.cluster,
            shard=0,
            number=0,
            previous_id=bytes(32),
            leaf_ids=leaves,
            previous_of=lambda room_id: 0,
        )
        with open(self.segment(0), "r+b") as file:
            file.write(sealed)
            file.seek(SMALL.segment_data_size)
            file.write(footer)
        with open(self.segment(1), "r+b") as file:
            file.write(b"".join(self.records[SEALED:]))

    def segment(self, number: int) -> Path:
        return self.volume / "segments" / f"{number:06d}"


def fresh_record(number: int) -> bytes:
    return record.encode(
        room_id=ROOMS[number % 3],
        msg_id=number.to_bytes(16, "little"),
        author_id=7,
        body=b"message %d" % number,
        client_id=CLIENT,
        client_seq=number + 1,
        timestamp=1_000_000 + number,
    )


def committed_records(count: int) -> list[bytes]:
    """Records as commit leaves them: chained by room, numbered in room and log."""
    heads = {room: (bytes(32), 0) for room in ROOMS}
    made = []
    for number in range(count):
        raw = bytearray(fresh_record(number))
        prev_hash, seq = heads[ROOMS[number % 3]]
        raw[record.PREV_HASH : record.PREV_HASH + 32] = prev_hash
        raw[record.SEQ : record.SEQ + 8] = (seq + 1).to_bytes(8, "little")
        raw[record.LOG_SEQ : record.LOG_SEQ + 8] = (number + 1).to_bytes(8, "little")
        heads[ROOMS[number % 3]] = (record.record_hash(bytes(raw)), seq + 1)
        made.append(bytes(raw))
    return made


@pytest.fixture(scope="module")
def formatted(tigerchat: Tigerchat, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("formatted")
    made = tigerchat("format", "--local", folder, "--nodes", 3, "--geometry", "small", "--brief")
    assert made.returncode == 0, made.stderr
    return folder


@pytest.fixture
def prepared(formatted: Path, tmp_path: Path) -> Prepared:
    shutil.copytree(formatted, tmp_path, dirs_exist_ok=True)
    result = Prepared(open_node(tmp_path / "node-1"))
    result.prepare(1, 3)
    result.prepare(2, 1)
    result.put_segments()
    return result


@pytest.fixture
def inspect(prepared: Prepared) -> Callable[..., list[dict[str, Any]]]:
    """`inspect("wal", "--all")`: the rows of a look, as `--json` prints them."""

    def rows(what: str, *words: object) -> list[dict[str, Any]]:
        arguments = [what, "--volume", prepared.volume, "--json", *words]
        result = CliRunner().invoke(command, list(map(str, arguments)), catch_exceptions=False)
        assert result.exit_code == 0
        return [json.loads(line) for line in result.stdout.splitlines()]

    return rows


def of_kind(rows: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [row for row in rows if row["kind"] == kind]


# --- superblock -----------------------------------------------------------------------------------


def test_superblock_shows_four_copies_and_whose_the_volume_is(
    inspect: Callable[..., list[dict[str, Any]]], prepared: Prepared
) -> None:
    rows = inspect("superblock")
    assert [
        (row["place"], row["copy"], row["valid"]) for row in of_kind(rows, "superblock_copy")
    ] == [(0, 0, True), (1, 1, True), (2, 2, True), (3, 3, True)]
    chosen = of_kind(rows, "superblock")[0]
    assert chosen["cluster"] == prepared.node.site.cluster.hex()
    assert (chosen["replica"], chosen["replica_count"], chosen["sequence"]) == (1, 3, 1)
    assert chosen["copies_to_repair"] == []


def test_superblock_names_a_broken_copy_and_still_finds_the_right_state(
    inspect: Callable[..., list[dict[str, Any]]], prepared: Prepared
) -> None:
    prepared.flip(2 * 65536 + 130)
    rows = inspect("superblock")
    assert [row["valid"] for row in of_kind(rows, "superblock_copy")] == [True, True, False, True]
    assert of_kind(rows, "superblock")[0]["copies_to_repair"] == [2]


def test_superblock_without_a_quorum_says_how_a_start_would_end(
    inspect: Callable[..., list[dict[str, Any]]], prepared: Prepared
) -> None:
    for copy in range(3):
        prepared.flip(copy * 65536 + 130)
    assert of_kind(inspect("superblock"), "superblock")[0]["halt"] == "SUPERBLOCK_QUORUM_LOST"


# --- write-ahead log ------------------------------------------------------------------------------


def test_wal_shows_each_slot_and_all_records_of_its_prepare(
    inspect: Callable[..., list[dict[str, Any]]], prepared: Prepared
) -> None:
    rows = inspect("wal", "--records")
    assert rows[0]["op_max"] == 2
    assert rows[0]["decisions"] == {"CLEAN": 3, "EMPTY": SMALL.slot_count - 3}
    slots = of_kind(rows, "slot")
    assert [(row["op"], row["decision"], row["body_ok"]) for row in slots] == [
        (0, "CLEAN", None),
        (1, "CLEAN", True),
        (2, "CLEAN", True),
    ]
    assert [row["digest"] for row in slots[1:]] == [h.digest.hex() for h, _ in prepared.prepares]
    assert slots[2]["parent"] == slots[1]["digest"]
    records = of_kind(rows, "prepared_record")
    assert [(row["op"], row["index"], row["client_seq"]) for row in records] == [
        (1, 0, 101),
        (1, 1, 102),
        (1, 2, 103),
        (2, 0, 201),
    ]
    assert bytes.fromhex(records[3]["body"]) == b"message 200"
    assert all(row["crc_ok"] for row in records)


def test_wal_shows_empty_slots_only_when_asked(
    inspect: Callable[..., list[dict[str, Any]]],
) -> None:
    assert len(of_kind(inspect("wal", "--all"), "slot")) == SMALL.slot_count


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        ("body", {"prepare": "bad", "decision": "FAULTY"}),
        ("prepare", {"prepare": "bad", "decision": "FAULTY"}),
        ("witness", {"witness": "bad", "decision": "FAULTY"}),
    ],
)
def test_wal_judges_a_broken_slot_as_a_start_would(
    inspect: Callable[..., list[dict[str, Any]]],
    prepared: Prepared,
    place: str,
    expected: dict[str, str],
) -> None:
    prepared.prepare(3, 1)  # so that slot 1 is not at the end, where it could be torn
    address = {
        "body": prepared.prepare_address(1) + 1000,
        "prepare": prepared.prepare_address(1),
        "witness": prepared.witness_address(1),
    }[place]
    prepared.flip(address)
    slot = next(row for row in of_kind(inspect("wal"), "slot") if row["slot"] == 1)
    assert {name: slot[name] for name in expected} == expected


# --- segments -------------------------------------------------------------------------------------


def test_segment_shows_every_committed_record_of_sealed_and_open_segments(
    inspect: Callable[..., list[dict[str, Any]]], prepared: Prepared
) -> None:
    rows = inspect("segment", "--records")
    segments = of_kind(rows, "segment")
    assert [
        (row["segment"], row["sealed"], row["records"], row["verified"]) for row in segments
    ] == [(0, True, SEALED, True), (1, False, OPEN, None)]
    records = of_kind(rows, "record")
    assert [row["log_seq"] for row in records] == list(range(1, SEALED + OPEN + 1))
    assert [row["hash"] for row in records] == [
        record.record_hash(raw).hex() for raw in prepared.records
    ]
    assert all(row["prev_hash_ok"] is True and row["crc_ok"] for row in records)
    assert bytes.fromhex(records[-1]["body"]) == b"message 136"
    assert records[5]["room_id"] == "03030303-0303-0303-0303-030303030303"
    assert (records[5]["seq"], records[5]["client_seq"]) == (2, 6)


def test_segment_cuts_each_record_out_and_not_all_that_follows_it(
    inspect: Callable[..., list[dict[str, Any]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of thousands of records in an extent of 23 MiB that would be all the time that it takes."""
    cut: list[int] = []

    class Extent(bytes):
        def __getitem__(self, key: Any) -> Any:
            found = super().__getitem__(key)
            cut.append(len(found) if isinstance(key, slice) else 1)
            return found

    whole = VolumeReader.read_extent
    monkeypatch.setattr(VolumeReader, "read_extent", lambda *each: Extent(whole(*each) or b""))
    assert len(of_kind(inspect("segment", "--records"), "record")) == SEALED + OPEN
    assert len(cut) > SEALED + OPEN and max(cut) == RECORD_SIZE


def test_segment_can_be_asked_for_one_alone(inspect: Callable[..., list[dict[str, Any]]]) -> None:
    rows = inspect("segment", "--records", "--number", 1)
    assert [row["segment"] for row in of_kind(rows, "segment")] == [1]
    first = of_kind(rows, "record")[0]
    assert (first["log_seq"], first["prev_hash_ok"]) == (SEALED + 1, None)


def test_segment_finds_a_flipped_bit_in_a_record_and_in_a_footer(
    inspect: Callable[..., list[dict[str, Any]]], prepared: Prepared
) -> None:
    flip(prepared.segment(0), 50 * RECORD_SIZE + record.BODY)
    rows = inspect("segment", "--records")
    assert of_kind(rows, "segment")[0]["verified"] is False
    broken = of_kind(rows, "record")[50]
    assert broken["crc_ok"] is False
    assert of_kind(rows, "record")[53]["prev_hash_ok"] is False
    flip(prepared.segment(0), 50 * RECORD_SIZE + record.BODY)
    flip(prepared.segment(0), SMALL.segment_data_size + 256)
    row = of_kind(inspect("segment"), "segment")[0]
    assert (row["verified"], row["reason"]) == (False, "segment 0: leaf 0 does not hash to its id")


def test_segment_stops_at_what_an_extent_held_before(
    inspect: Callable[..., list[dict[str, Any]]], prepared: Prepared
) -> None:
    stale = prepared.records[OPEN]
    with open(prepared.segment(1), "r+b") as file:
        file.seek(OPEN * RECORD_SIZE)
        file.write(stale)
    assert of_kind(inspect("segment"), "segment")[1]["records"] == OPEN


# --- checkpoint, snapshot -------------------------------------------------------------------------


def test_counting_the_records_of_a_full_sized_segment_copies_one_at_a_time() -> None:
    """All behind it, for each of ten thousand records, takes half a minute a segment."""
    data = bytearray(PRODUCTION.extent_size)
    for slot in range(2):
        at = slot * RECORD_SIZE + record.LOG_SEQ
        data[at : at + 8] = (slot + 1).to_bytes(8, "little")
    extent = bytes(data)
    tracemalloc.start()
    try:
        (row,) = inspect_module._segment(PRODUCTION, 0, 0, extent, None)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert row["records"] == 2
    assert most < MIB


def test_a_volume_without_segments_says_where_its_records_are(
    tigerchat: Tigerchat, formatted: Path
) -> None:
    result = tigerchat("inspect", "segment", "--volume", formatted / "node-1" / "shard-0")
    assert result.returncode == 0
    assert "none yet: what there is stands in the WAL" in result.stdout


def test_checkpoint_of_a_fresh_volume_is_the_state_at_format(
    inspect: Callable[..., list[dict[str, Any]]],
) -> None:
    assert inspect("checkpoint") == [
        {"kind": "checkpoint", "checkpoint": 0, "reason": "none yet: the state at format"}
    ]


def snapshot_file(
    prepared: Prepared,
    path: Path,
    key: SigningKey,
    records: list[bytes] | None = None,
    room: bytes = snapshot.SEGMENT,
) -> Path:
    """Of the sealed segment, or of these records of a room from its first on."""
    chosen = prepared.records[:SEALED] if records is None else records
    parts = snapshot.render(chosen, room_id=room, op=len(chosen), record_count=len(chosen), key=key)
    path.write_bytes(b"".join(parts))
    return path


def test_snapshot_is_verified_with_the_keys_of_the_site(
    inspect: Callable[..., list[dict[str, Any]]], prepared: Prepared, tmp_path: Path
) -> None:
    seed = read_seed(tmp_path / "node-2/keys/signing.key")
    rows = inspect(
        "snapshot", snapshot_file(prepared, tmp_path / "s", SigningKey(seed)), "--records"
    )
    head = rows[0]
    assert (head["of"], head["signed_by"], head["records"]) == ("segment", "node-2", SEALED)
    assert (head["first_log_seq"], head["last_log_seq"]) == (1, SEALED)
    assert len(of_kind(rows, "record")) == SEALED


def test_numbers_of_a_room_the_log_and_its_operations_have_a_name_each(
    inspect: Callable[..., list[dict[str, Any]]], prepared: Prepared, tmp_path: Path
) -> None:
    """`op` is an operation of the shard, `log_seq` a record of its log, `seq` one of its room."""
    seed = read_seed(tmp_path / "node-2/keys/signing.key")
    of_room = prepared.records[0:SEALED:3]
    path = snapshot_file(prepared, tmp_path / "s", SigningKey(seed), of_room, room=ROOMS[0])
    (head,) = inspect("snapshot", path)
    assert (head["first_seq"], head["last_seq"]) == (1, len(of_room))
    (row, *_) = of_kind(inspect("wal", "--records"), "prepared_record")
    assert {"op", "seq", "log_seq"} <= set(row)
    (row, *_) = of_kind(inspect("segment", "--records"), "record")
    assert {"seq", "log_seq"} <= set(row) and not [name for name in row if name.endswith("op")]


def test_snapshot_of_a_stranger_is_refused(
    tigerchat: Tigerchat, sentence: Sentence, prepared: Prepared, tmp_path: Path
) -> None:
    path = snapshot_file(prepared, tmp_path / "s", SigningKey(b"\x05" * 32))
    text = sentence(tigerchat("inspect", "snapshot", path, "--volume", prepared.volume), 1)
    assert "no node of" in text


# --- for people, and mistakes ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("what", "shown"), [("superblock", "copies_to_repair    []"), ("segment", "last_log_seq")]
)
def test_people_get_a_table(
    tigerchat: Tigerchat, prepared: Prepared, what: str, shown: str
) -> None:
    result = tigerchat("inspect", what, "--volume", prepared.volume)
    assert result.returncode == 0
    assert shown in result.stdout


def test_programs_get_one_json_object_a_line(
    tigerchat: Tigerchat, inspect: Callable[..., list[dict[str, Any]]], prepared: Prepared
) -> None:
    result = tigerchat("inspect", "wal", "--records", "--json", "--volume", prepared.volume)
    assert [json.loads(line) for line in result.stdout.splitlines()] == inspect("wal", "--records")


def test_reading_changes_no_byte(
    inspect: Callable[..., list[dict[str, Any]]], prepared: Prepared
) -> None:
    before = {path: path.read_bytes() for path in prepared.volume.rglob("*") if path.is_file()}
    for what in ("superblock", "wal", "segment", "checkpoint"):
        inspect(what)
    assert {p: p.read_bytes() for p in prepared.volume.rglob("*") if p.is_file()} == before


@pytest.mark.parametrize(
    ("place", "said"),
    [("absent", "is not the folder of a volume"), (".", "holds no volume: correct the folder")],
)
def test_a_place_without_a_volume_is_named(
    tigerchat: Tigerchat, sentence: Sentence, tmp_path: Path, place: str, said: str
) -> None:
    code = 2 if place == "absent" else 1
    text = sentence(tigerchat("inspect", "wal", "--volume", tmp_path / place), code)
    assert said in text
