"""Each size, count, id and index at its bound, past it, and negative."""

import struct
import tracemalloc
import zlib
from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from appliance.base import limits
from appliance.base.errors import FarmFrameError
from appliance.base.limits import MIB
from appliance.formats.raft_legacy import log_pack
from appliance.formats.raft_legacy.configuration import (
    Configuration,
    Server,
    decode_configuration,
    decode_server,
    decode_server_id,
    encode_configuration,
    endpoint_address,
    server_checked,
)
from appliance.formats.raft_legacy.frame import (
    ANSWER_OF,
    APPEND_ENTRIES,
    APPLICATION,
    RESPONSES,
    Entry,
    Request,
    Response,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)
from appliance.formats.raft_legacy.log_pack import decode_log_pack, encode_log_pack
from appliance.formats.raft_legacy.reader import RequestReader
from appliance.formats.raft_legacy.snapshot_block import (
    SnapshotBlock,
    decode_snapshot_block,
    encode_snapshot_block,
)

TERM_MAX, ID_MAX = limits.FARM_TERM_MAX, limits.FARM_ID_MAX


def head(
    *,
    kind: int = APPEND_ENTRIES,
    ids: tuple[int, int] = (1, 2),
    numbers: tuple[int, ...] = (1, 1, 1, 1),
    size: int = 0,
) -> bytes:
    return struct.pack(">Biiqqqqi", kind, *ids, *numbers, size)


def entry(
    value: bytes, *, term: int = 1, kind: int = APPLICATION, size: int | None = None
) -> bytes:
    return struct.pack(">qBi", term, kind, len(value) if size is None else size) + value


def refused(decode: Callable[..., object], data: bytes, reason: str) -> None:
    with pytest.raises(FarmFrameError) as raised:
        decode(data)
    assert raised.value.reason == reason


@pytest.mark.parametrize("size", [-1, -(1 << 31), limits.FARM_ENTRIES_SIZE_MAX + 1, (1 << 31) - 1])
def test_a_bad_size_of_entries_is_refused_before_they_arrive(size: int) -> None:
    reader = RequestReader()
    reader.feed(head(size=size))
    refused(lambda _: reader.take(), b"", "size_negative" if size < 0 else "size_too_large")


def test_entries_up_to_their_bound_are_taken() -> None:
    value = bytes(limits.FARM_ENTRIES_SIZE_MAX - 13)
    request = Request(APPEND_ENTRIES, 1, 2, 1, 1, 1, 1, (Entry(1, APPLICATION, value),))
    assert decode_request(encode_request(request)) == request


@pytest.mark.parametrize("size", [-1, -(1 << 31), 4, (1 << 31) - 1])
def test_a_bad_size_of_a_value_is_refused(size: int) -> None:
    data = head(size=16) + entry(b"abc", size=size)
    refused(decode_request, data, "size_negative" if size < 0 else "entry_remainder")


def test_a_value_may_be_empty_and_a_remainder_is_refused() -> None:
    assert decode_request(head(size=13) + entry(b"")).entries == (Entry(1, APPLICATION, b""),)
    refused(decode_request, head(size=14) + entry(b"") + b"x", "entry_remainder")
    refused(decode_request, head(size=12) + entry(b"")[:12], "entry_remainder")


def test_the_number_of_entries_is_bounded() -> None:
    most = limits.FARM_ENTRIES_MAX
    assert len(decode_request(head(size=13 * most) + entry(b"") * most).entries) == most
    data = head(size=13 * (most + 1)) + entry(b"") * (most + 1)
    refused(decode_request, data, "entries_too_many")


@pytest.mark.parametrize("kind", range(256))
def test_only_requests_are_taken_as_requests(kind: int) -> None:
    if kind in ANSWER_OF:
        assert decode_request(head(kind=kind)).type == kind
    else:
        word = "response_as_request" if kind in RESPONSES else "type_unknown"
        refused(decode_request, head(kind=kind), word)
    response = struct.pack(">BiiqqB", kind, 1, 2, 1, 1, 1)
    if kind in RESPONSES:
        assert decode_response(response).type == kind
    else:
        refused(decode_response, response, "type_unknown")


@pytest.mark.parametrize("place", range(4))
def test_terms_and_indexes_are_bounded(place: int) -> None:
    def numbers(value: int) -> tuple[int, ...]:
        return tuple(value if i == place else 1 for i in range(4))

    decode_request(head(numbers=numbers(TERM_MAX)))
    decode_request(head(numbers=numbers(0)))
    for value in (TERM_MAX + 1, -1, -(1 << 63), (1 << 63) - 1):
        refused(decode_request, head(numbers=numbers(value)), "index_out_of_range")


def test_terms_of_entries_and_numbers_of_responses_are_bounded() -> None:
    for value in (TERM_MAX + 1, -1):
        refused(decode_request, head(size=13) + entry(b"", term=value), "index_out_of_range")
        for pair in ((value, 1), (1, value)):
            data = struct.pack(">BiiqqB", 4, 1, 2, *pair, 1)
            refused(decode_response, data, "index_out_of_range")


def test_ids_are_bounded() -> None:
    decode_request(head(ids=(ID_MAX, 0)))
    refused(decode_request, head(ids=(-1, 2)), "id_invalid")
    refused(decode_request, head(ids=(1, -1)), "id_invalid")
    decode_response(struct.pack(">BiiqqB", 4, ID_MAX, -1, 1, 1, 1))
    refused(decode_response, struct.pack(">BiiqqB", 4, 1, -2, 1, 1, 1), "id_invalid")
    refused(decode_response, struct.pack(">BiiqqB", 4, -1, 1, 1, 1, 1), "id_invalid")


def test_anything_but_one_means_no() -> None:
    for byte in range(256):
        data = struct.pack(">BiiqqB", 4, 1, 2, 1, 1, byte)
        assert decode_response(data).accepted is (byte == 1)


def server(server_id: int, endpoint: bytes, size: int | None = None) -> bytes:
    return struct.pack(">ii", server_id, len(endpoint) if size is None else size) + endpoint


def test_endpoints_are_bounded_ascii() -> None:
    most = limits.FARM_ENDPOINT_SIZE_MAX
    assert decode_server(server(1, b"e" * most)) == Server(1, "e" * most)
    for data in (server(1, b"e" * (most + 1)), server(1, b""), server(1, b"e", size=-1)):
        refused(decode_server, data, "endpoint_invalid")
    for byte in (b"\x00", b" ", b"\x7f", b"\x80", b"\n"):
        refused(decode_server, server(1, b"tcp://a" + byte), "endpoint_invalid")
    for server_id in (0, -1):
        refused(decode_server, server(server_id, b"e"), "id_invalid")
    refused(decode_server, server(1, b"e") + b"x", "configuration_malformed")


def test_a_configuration_lists_each_server_once_and_may_be_a_leaders_large_one() -> None:
    twice = struct.pack(">qq", 1, 0) + server(1, b"e") * 2
    refused(decode_configuration, twice, "configuration_malformed")
    many = Configuration(1, 0, tuple(Server(i, "e") for i in range(1, 101)))
    assert decode_configuration(encode_configuration(many)) == many
    assert decode_configuration(struct.pack(">qq", 1, 0)).servers == ()
    for pair in ((-1, 0), (0, -1), (TERM_MAX + 1, 0)):
        refused(decode_configuration, struct.pack(">qq", *pair), "index_out_of_range")


def test_a_server_to_remove_is_four_bytes() -> None:
    assert decode_server_id(struct.pack(">i", ID_MAX)) == ID_MAX
    refused(decode_server_id, bytes(3), "configuration_malformed")
    refused(decode_server_id, bytes(5), "configuration_malformed")
    refused(decode_server_id, bytes(4), "id_invalid")


@pytest.mark.parametrize(
    ("endpoint", "address"),
    [
        ("tcp://10.0.0.3:7650", ("10.0.0.3", 7650)),
        ("tls://node-1.example:1", ("node-1.example", 1)),
        ("tcp://[fd00::1]:65535", ("fd00::1", 65535)),
    ],
)
def test_endpoints_that_everybody_understands(endpoint: str, address: tuple[str, int]) -> None:
    assert endpoint_address(endpoint) == address
    assert server_checked(7, endpoint) == Server(7, endpoint)


@pytest.mark.parametrize(
    "endpoint",
    [
        *(
            "10.0.0.3:7650",
            "tcp://10.0.0.3",
            "tcp://a_b:1",
            "tcp://:1",
            "tcp://a:0",
            "tcp://a:65536",
        ),
        *(
            "tcp://fd00::1:1",
            "tcp://a:1/path",
            "tcp://a b:1",
            "",
            "tcp://-a:1",
            "tcp://" + "a" * 250 + ":1",
        ),
    ],
)
def test_endpoints_that_break_a_peer_are_refused(endpoint: str) -> None:
    with pytest.raises(FarmFrameError) as raised:
        endpoint_address(endpoint)
    assert raised.value.reason == "endpoint_invalid"


ENTRIES = st.lists(
    st.builds(Entry, st.integers(0, TERM_MAX), st.integers(0, 255), st.binary(max_size=60)),
    max_size=20,
)


@given(ENTRIES, st.integers(0, 1 << 40))
def test_log_packs_come_back_with_their_start(entries: list[Entry], start: int) -> None:
    found, same = decode_log_pack(encode_log_pack(entries, start))
    assert same == tuple(entries)
    assert found == (start if entries else 0)


def gzip(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=31)
    return packer.compress(data) + packer.flush()


def pack(
    starts: list[int], data: bytes, index_size: int | None = None, data_size: int | None = None
) -> bytes:
    sizes = (
        8 * len(starts) if index_size is None else index_size,
        len(data) if data_size is None else data_size,
    )
    return gzip(struct.pack(f">ii{len(starts)}q", *sizes, *starts) + data)


RECORDS = (struct.pack(">qB", 1, 1) + b"ab") * 2


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(b"no gzip", id="no gzip"),
        pytest.param(b"", id="empty"),
        pytest.param(zlib.compress(bytes(8)), id="another container"),
        pytest.param(gzip(bytes(7)), id="no sizes"),
        pytest.param(pack([0, 11], RECORDS, index_size=-8), id="negative index"),
        pytest.param(pack([0, 11], RECORDS, data_size=-1), id="negative data"),
        pytest.param(pack([0, 11], RECORDS, index_size=15), id="half a start"),
        pytest.param(pack([0, 11], RECORDS, data_size=23), id="data missing"),
        pytest.param(pack([0, 11], RECORDS, data_size=21), id="data left over"),
        pytest.param(pack([0, 11], RECORDS) + b"x", id="bytes behind the member"),
        pytest.param(pack([0, 11], RECORDS) * 2, id="two members"),
        pytest.param(pack([0, 11], RECORDS)[:-1], id="trailer cut"),
        pytest.param(pack([0, 8], RECORDS), id="record below nine bytes"),
        pytest.param(pack([0, 14], RECORDS), id="last record below nine bytes"),
        pytest.param(pack([11, 0], RECORDS), id="falling starts"),
        pytest.param(pack([0, 0], RECORDS), id="equal starts"),
        pytest.param(pack([0, 1 << 62], RECORDS), id="start behind the data"),
        pytest.param(pack([-11, 0], RECORDS), id="negative start"),
        pytest.param(pack([], RECORDS), id="data without index"),
    ],
)
def test_malformed_log_packs_are_refused(value: bytes) -> None:
    refused(decode_log_pack, value, "pack_malformed")


def test_a_log_pack_that_unpacks_to_more_than_it_says_is_stopped() -> None:
    bomb = pack([0], bytes(256 * MIB), data_size=9)
    tracemalloc.start()
    refused(decode_log_pack, bomb, "pack_malformed")
    refused(decode_log_pack, pack([0], b"", data_size=(1 << 31) - 1), "pack_too_large")
    refused(decode_log_pack, pack([], b"", index_size=(1 << 31) - 8), "pack_too_large")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 * MIB


def test_a_log_pack_at_its_bound_is_taken_and_one_byte_more_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(log_pack, "FARM_PACK_SIZE_MAX", 8 + 16 + len(RECORDS))
    assert len(decode_log_pack(pack([0, 11], RECORDS))[1]) == 2
    refused(decode_log_pack, pack([0, 11], RECORDS + b"x"), "pack_too_large")


SERVERS = Configuration(1, 0, (Server(1, "tcp://a:1"),))


def test_snapshot_blocks_come_back() -> None:
    for block in (b"", b"text"):
        for done in (True, False):
            made = SnapshotBlock(9, 2, SERVERS, 100, block, done)
            assert decode_snapshot_block(encode_snapshot_block(made)) == made


def test_a_snapshot_is_bounded() -> None:
    most = limits.FARM_SNAPSHOT_SIZE_MAX
    whole = SnapshotBlock(9, 2, SERVERS, most - 4, b"last", True)
    assert decode_snapshot_block(encode_snapshot_block(whole)) == whole
    for offset in (most - 3, -1, (1 << 63) - 1):
        value = encode_snapshot_block(SnapshotBlock(9, 2, SERVERS, offset, b"last", True))
        refused(decode_snapshot_block, value, "snapshot_too_large")


def test_a_block_is_bounded() -> None:
    most = limits.FARM_BLOCK_SIZE_MAX
    whole = SnapshotBlock(9, 2, SERVERS, 0, bytes(most), False)
    assert decode_snapshot_block(encode_snapshot_block(whole)) == whole
    more = SnapshotBlock(9, 2, SERVERS, 0, bytes(most + 1), False)
    refused(decode_snapshot_block, encode_snapshot_block(more), "block_too_large")


@pytest.mark.parametrize("place", [16, 28 + 34])
@pytest.mark.parametrize("size", [-1, -(1 << 31), 1, (1 << 31) - 1])
def test_a_bad_size_in_a_snapshot_block_is_refused(place: int, size: int) -> None:
    value = bytearray(encode_snapshot_block(SnapshotBlock(9, 2, SERVERS, 0, b"block", True)))
    struct.pack_into(">i", value, place, size)
    with pytest.raises(FarmFrameError):
        decode_snapshot_block(bytes(value))


@given(st.binary(max_size=200))
@example(b"")
def test_random_bytes_are_refused_with_a_word_and_nothing_else(data: bytes) -> None:
    for decode in (
        decode_request,
        decode_response,
        decode_configuration,
        decode_server,
        decode_server_id,
        decode_log_pack,
        decode_snapshot_block,
    ):
        try:
            decode(data)
        except FarmFrameError as error:
            assert error.reason


REQUESTS = st.builds(
    Request,
    type=st.sampled_from(sorted(ANSWER_OF)),
    source=st.integers(0, ID_MAX),
    destination=st.integers(0, ID_MAX),
    term=st.integers(0, TERM_MAX),
    previous_term=st.integers(0, TERM_MAX),
    previous_index=st.integers(0, TERM_MAX),
    commit=st.integers(0, TERM_MAX),
    entries=ENTRIES.map(tuple),
)


@given(st.lists(REQUESTS, max_size=4), st.integers(1, 50))
def test_requests_survive_any_cutting_of_their_stream(requests: list[Request], step: int) -> None:
    stream = b"".join(map(encode_request, requests))
    reader, taken = RequestReader(), []
    for offset in range(0, len(stream), step):
        reader.feed(stream[offset : offset + step])
        while (request := reader.take()) is not None:
            taken.append(request)
    assert taken == requests


@given(
    st.builds(
        Response,
        st.sampled_from(sorted(RESPONSES)),
        st.integers(0, ID_MAX),
        st.integers(-1, ID_MAX),
        st.integers(0, TERM_MAX),
        st.integers(0, TERM_MAX),
        st.booleans(),
    )
)
def test_responses_come_back(response: Response) -> None:
    assert decode_response(encode_response(response)) == response
