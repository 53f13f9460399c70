"""A shared room between records of the log and entries of its channel."""

from pathlib import Path

import numpy as np
import pytest

from appliance.base.errors import CausalRefused
from appliance.base.prng import Prng
from appliance.base.signature import SigningKey
from appliance.cores.federation.effects import Append
from appliance.formats import record as rec
from appliance.formats.causal.content import RoomMessage, seal
from appliance.formats.causal.message_id import message_id
from appliance.formats.record import RECORD
from appliance.formats.room_name import room_id_of
from appliance.formats.sharing import SharedSite, Sharing, carrier_client_id
from appliance.roles.federation import rooms
from appliance.roles.federation.rooms import Identity, SharedRoom, channel_name
from appliance.roles.federation.store import LmdbChannelStore

NOW_MS = 1_700_000_000_000
ROOM = room_id_of("lobby")
HERE, THERE = SigningKey(bytes(32)), SigningKey(bytes(range(32)))
SHARED = Sharing((SharedSite("oslo", THERE.public), SharedSite("paris", HERE.public)))


def said(lamport: int, *, seq: int = 1, part: int = 0, text: bytes = b"hei") -> Append:
    """What oslo says, at a place in the order."""
    message = RoomMessage(0, bytes(16), 1, "ola", NOW_MS * 1000, seq, text, part=part, parts=2)
    place = {"channel": channel_name(ROOM), "lamport": lamport}
    content = seal(message, THERE, site="oslo", **place)
    name = message_id(sender="oslo", content=content, **place)
    return Append(name, "oslo", lamport, content, ())


def test_what_another_site_says_anew_under_another_id_is_not_appended_again(
    tmp_path: Path,
) -> None:
    store = LmdbChannelStore(tmp_path)
    room = SharedRoom(ROOM, SHARED, Identity("paris", HERE), store, Prng(1), NOW_MS)
    first = said(NOW_MS)
    raw = room.record_of(first, carrier_client_id(1), 1)
    assert room.record_of(first, carrier_client_id(1), 1) == raw
    room.replay(np.frombuffer(raw, RECORD), 1, NOW_MS)
    assert len(room.channel.order()) == 1
    assert room.record_of(first, carrier_client_id(1), 1) == raw, "the same id is the same record"
    with pytest.raises(CausalRefused) as caught:
        room.record_of(said(NOW_MS + 1), carrier_client_id(1), 2)
    assert caught.value.reason == "repeated"
    for other in (said(NOW_MS + 1, part=1), said(NOW_MS + 1, seq=2)):
        assert len(room.record_of(other, carrier_client_id(1), 2)) == rec.RECORD.itemsize
    store.close()


def test_a_log_of_any_length_is_read_again_with_a_bounded_number_of_rows_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rooms, "FEDERATED_ROWS_MAX", 50)
    store = LmdbChannelStore(tmp_path)
    room = SharedRoom(ROOM, SHARED, Identity("paris", HERE), store, Prng(1), NOW_MS)
    raw = rec.encode(
        room_id=ROOM, msg_id=bytes(16), author_id=1, body=b"hei", client_id=bytes(16), client_seq=1
    )
    for position in range(1, 101):
        (row,) = records = np.frombuffer(bytearray(raw), RECORD)
        row["log_seq"] = row["seq"] = position
        row["timestamp"] = (NOW_MS + position) * 1000
        room.replay(records, position, NOW_MS)
        assert store.unflushed <= 50
    assert len(room.channel.order()) == 100 == room.position
    store.close()
