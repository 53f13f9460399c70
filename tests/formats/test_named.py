"""What an error repeats of a frame that was refused is the same in both encodings."""

from uuid import UUID

import msgspec
import pytest

from appliance.formats.client.frame import Frame, encode_binary, encode_json
from appliance.formats.client.history import SnapshotRequest
from appliance.formats.client.parse import named_in, named_in_binary, parse_binary, parse_json
from appliance.formats.client.rooms import CreateRoom
from appliance.formats.client.sending import SendMessage
from appliance.formats.client.sign_in import RefreshToken
from appliance.formats.client.subscribing import SubscribeRoom
from appliance.formats.client_errors import FieldInvalid

ROOM = UUID(int=7)
WRONG: list[tuple[Frame, set[str]]] = [
    (SnapshotRequest(room_id=ROOM, limit=5000, request="r"), {"room_id", "request"}),
    (SnapshotRequest(room_id=ROOM, limit=0), {"room_id"}),
    (SubscribeRoom(room_id=ROOM, since_op=1 << 63, request="r"), {"room_id", "request"}),
    (CreateRoom(name="x", request="r" * 65), set()),
    (RefreshToken(token="x" * 5000, request="r"), {"request"}),
]


@pytest.mark.parametrize(("frame", "names"), WRONG, ids=lambda one: type(one).__name__)
def test_both_encodings_name_the_same(frame: Frame, names: set[str]) -> None:
    text, data = encode_json(frame), encode_binary(frame)
    for parse, raw in ((parse_json, text), (parse_binary, data)):
        with pytest.raises(FieldInvalid):
            parse(raw)
    assert named_in(text) == named_in_binary(data)
    assert {name for name, value in named_in(text).items() if value is not None} == names


def test_of_a_frame_that_breaks_off_what_stands_before_is_named() -> None:
    data = encode_binary(SnapshotRequest(room_id=ROOM, limit=5, request="r"))
    assert named_in_binary(data[:20]) == {"room_id": ROOM}
    assert named_in_binary(data) == {"room_id": ROOM, "request": "r"}
    for size in range(20):
        assert named_in_binary(data[:size]) == {}


def test_of_many_items_none_is_named() -> None:
    """Each of them has an answer of its own."""
    assert named_in_binary(encode_binary(SendMessage(room_id=ROOM, client_seq=1, body="x"))) == {}


def test_a_code_of_no_frame_names_nothing() -> None:
    assert named_in_binary(b"\xee\x01\x01\x00" + bytes(40)) == {}
    assert named_in_binary(msgspec.json.encode({})) == {}
