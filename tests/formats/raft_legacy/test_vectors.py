"""Frames of running JRaft servers are read and written again byte for byte."""

import zlib

import pytest

from appliance.base.errors import FarmFrameError
from appliance.formats.raft_legacy.configuration import (
    decode_configuration,
    decode_server,
    decode_server_id,
    encode_configuration,
    encode_server,
    encode_server_id,
)
from appliance.formats.raft_legacy.frame import (
    ADD_SERVER,
    ANSWER_OF,
    APPLICATION,
    CONFIGURATION,
    ENTRY_SIZE,
    LOG_PACK,
    REMOVE_SERVER,
    REQUEST_SIZE,
    SNAPSHOT_SYNC,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)
from appliance.formats.raft_legacy.log_pack import decode_log_pack, encode_log_pack, record_size
from appliance.formats.raft_legacy.reader import RequestReader, ResponseReader
from appliance.formats.raft_legacy.snapshot_block import (
    decode_snapshot_block,
    encode_snapshot_block,
)
from tests.formats.raft_legacy.vectors import vector, vectors

REQUESTS, RESPONSES = vectors("request"), vectors("response")


def test_every_type_of_request_but_pre_vote_is_among_the_vectors() -> None:
    assert {data[0] for _, data in REQUESTS} == set(ANSWER_OF) - {33}
    assert {data[0] for _, data in RESPONSES} == set(ANSWER_OF.values()) - {34}


@pytest.mark.parametrize(("name", "data"), REQUESTS)
def test_a_request_is_read_and_written_again(name: str, data: bytes) -> None:
    assert encode_request(decode_request(data)) == data


@pytest.mark.parametrize(("name", "data"), RESPONSES)
def test_a_response_is_read_and_written_again(name: str, data: bytes) -> None:
    assert encode_response(decode_response(data)) == data


@pytest.mark.parametrize(("name", "data"), REQUESTS)
def test_every_truncation_of_a_request_waits_for_more_or_is_refused(name: str, data: bytes) -> None:
    for size in range(len(data)):
        with pytest.raises(FarmFrameError):
            decode_request(data[:size])
        reader = RequestReader()
        reader.feed(data[:size])
        assert reader.take() is None
        reader.feed(data[size:])
        assert reader.take() == decode_request(data)
        reader.feed(data)  # nothing stands before it
        assert reader.take() == decode_request(data) and reader.take() is None


@pytest.mark.parametrize(("name", "data"), RESPONSES)
def test_every_truncation_of_a_response_waits_for_more_or_is_refused(
    name: str, data: bytes
) -> None:
    for size in range(len(data)):
        with pytest.raises(FarmFrameError):
            decode_response(data[:size])
        reader = ResponseReader()
        reader.feed(data[:size])
        assert reader.take() is None
        reader.feed(data[size:])
        assert reader.take() == decode_response(data)
        assert reader.take() is None


def test_requests_that_arrive_together_are_taken_one_by_one() -> None:
    reader = RequestReader()
    reader.feed(b"".join(data for _, data in REQUESTS))
    taken = []
    while (request := reader.take()) is not None:
        taken.append(encode_request(request))
    assert taken == [data for _, data in REQUESTS]


VALUES = {
    CONFIGURATION: lambda value: encode_configuration(decode_configuration(value)),
    SNAPSHOT_SYNC: lambda value: encode_snapshot_block(decode_snapshot_block(value)),
    APPLICATION: lambda value: value,
}


@pytest.mark.parametrize(("name", "data"), REQUESTS)
def test_the_values_of_a_request_are_read_and_written_again(name: str, data: bytes) -> None:
    request = decode_request(data)
    for entry in request.entries:
        if request.type == ADD_SERVER:
            assert encode_server(decode_server(entry.value)) == entry.value
        elif request.type == REMOVE_SERVER:
            assert encode_server_id(decode_server_id(entry.value)) == entry.value
        elif entry.type != LOG_PACK:
            assert VALUES[entry.type](entry.value) == entry.value


DECODERS = {
    "V3": decode_configuration,
    "V9": decode_server,
    "V11": decode_log_pack,
    "V13": decode_server_id,
    "V14": decode_snapshot_block,
}


@pytest.mark.parametrize("name", DECODERS)
def test_every_truncation_of_a_value_is_refused(name: str) -> None:
    (entry,) = decode_request(vector(name)).entries
    wholes = {16, 45, 74} if name == "V3" else set()  # where a server ends: fewer, but whole
    for size in set(range(len(entry.value))) - wholes:
        with pytest.raises(FarmFrameError):
            DECODERS[name](entry.value[:size])


def test_what_the_vectors_say() -> None:
    request = decode_request(vector("V12"))
    assert (request.term, request.previous_term, request.previous_index) == (1, 1, 16)
    configuration = decode_configuration(request.entries[0].value)
    assert (configuration.index, configuration.previous) == (17, 1)
    assert configuration.ids == (1, 2, 3, 4)
    assert configuration.endpoint_of(4) == "tcp://127.0.0.1:21004"
    assert decode_response(vectors("response")[7][1]).destination == -1
    block = decode_snapshot_block(decode_request(vector("V14")).entries[0].value)
    assert (block.index, block.term, block.offset, len(block.block)) == (205, 1, 1792, 72)
    assert block.done


def test_the_starts_of_a_log_pack_are_absolute() -> None:
    value = vector("V11")[REQUEST_SIZE + ENTRY_SIZE :]
    unpacked = vector("V11", "unpacked")
    assert zlib.decompress(value, 31) == unpacked
    start, entries = decode_log_pack(value)
    assert start == 192
    assert [entry.value for entry in entries] == [b"key%d:value%d" % (n, n) for n in range(4, 9)]
    assert sum(record_size(entry) for entry in entries) == 100
    assert zlib.decompress(encode_log_pack(entries, start), 31) == unpacked
