"""What a message of another site takes beside its record, and that it is said from the log."""

import random
from pathlib import Path

import numpy as np
import pytest

from appliance.base.limits import CHANNEL_TEXT_KEPT_MAX
from appliance.base.prng import Prng
from appliance.base.signature import SigningKey
from appliance.cores.federation import effects as told
from appliance.cores.shipping.source import Source
from appliance.drivers.store.store import Store
from appliance.formats import record as rec
from appliance.formats.causal import message as sds
from appliance.formats.causal.message import HistoryEntry
from appliance.formats.geometry import PRODUCTION, RECORD_SIZE
from appliance.formats.room_name import room_id_of
from appliance.formats.segment import RING_HEAD_SIZE, SegmentView, ring_size
from appliance.formats.sharing import SharedSite, Sharing, carrier_client_id
from appliance.roles.federation.log_pieces import LogTexts
from appliance.roles.federation.rooms import Identity, SharedRoom
from appliance.roles.federation.store import DATABASE, LmdbChannelStore

NOW_MS = 1_700_000_000_000
ROOM = room_id_of("lobby")
OSLO, PARIS = SigningKey(bytes(32)), SigningKey(bytes(range(32)))
SHARED = Sharing((SharedSite("oslo", OSLO.public), SharedSite("paris", PARIS.public)))
MESSAGES = 400
LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 ."


class NoSegments:
    oldest = 0

    def view(self, number: int) -> SegmentView | None:
        return None


class Log:
    """The log of a site in its ring; `source` reads it, as that of a session does."""

    def __init__(self) -> None:
        self.ring = memoryview(bytearray(ring_size(PRODUCTION)))
        self.source: Source | None = Source(PRODUCTION, self.ring, NoSegments())
        self.count = 0

    def append(self, raw: bytes) -> np.ndarray:
        """The committed record."""
        assert self.source is not None
        self.count += 1
        (row,) = found = np.frombuffer(bytearray(raw), rec.RECORD)
        row["log_seq"] = row["seq"] = self.source.log_seq = self.count
        row["timestamp"] = (NOW_MS + self.count) * 1000
        sealed = bytearray(found.tobytes())
        rec.seal(sealed, 0)
        at = self.offset(self.count)
        self.ring[at : at + RECORD_SIZE] = sealed
        self.ring[8:16] = self.count.to_bytes(8, "little")
        return np.frombuffer(sealed, rec.RECORD)

    @staticmethod
    def offset(log_seq: int) -> int:
        return RING_HEAD_SIZE + (log_seq - 1) * RECORD_SIZE


class Site:
    """One with its log and the channel of the room, whose log commits at once."""

    def __init__(self, name: str, key: SigningKey, folder: Path) -> None:
        self.log, self.folder = Log(), folder / name
        self.texts = LogTexts(self.log)
        self.store = LmdbChannelStore(self.folder, self.texts)
        identity = Identity(name, key)
        self.room = SharedRoom(ROOM, SHARED, identity, self.store, Prng(1), NOW_MS)

    def say(self, text: str, seq: int) -> list[bytes]:
        """The messages that go out."""
        raw = rec.encode(
            room_id=ROOM, msg_id=seq.to_bytes(16, "little"), author_id=1, body=text.encode(),
            client_id=bytes(16), client_seq=seq,
        )  # fmt: skip
        out = []
        for record in self.room.log_records(self.log.append(raw)):
            at_ms = record.timestamp_ms
            out += self._take(self.room.channel.on_local(record.content, at_ms, timestamp_ms=at_ms))
        return out

    def hear(self, data: bytes) -> None:
        self._take(self.room.channel.on_message(data, NOW_MS))

    def _take(self, effects: list[told.Effect]) -> list[bytes]:
        self.store.apply([effect for effect in effects if isinstance(effect, told.Write)])
        for effect in effects:
            if isinstance(effect, told.Append):
                raw = self.room.record_of(effect, carrier_client_id(1), self.room.next_seq)
                self.room.next_seq += 1
                for record in self.room.log_records(self.log.append(raw)):
                    self._take(self.room.channel.on_committed(record, NOW_MS))
        return [effect.data for effect in effects if isinstance(effect, told.Broadcast)]

    def close(self) -> int:
        """Bytes in use of the channel's store."""
        self.store.close()
        store = Store(self.folder, [DATABASE], 1, read_only=True)
        figures = store.figures()
        store.close()
        return figures.used_size - figures.free_size


@pytest.mark.parametrize("letters", [1, CHANNEL_TEXT_KEPT_MAX, 1_000, 1_984, 2_000])
def test_a_message_of_another_site_takes_at_most_twice_its_records(
    tmp_path: Path, letters: int
) -> None:
    oslo, paris = Site("oslo", OSLO, tmp_path), Site("paris", PARIS, tmp_path)
    chance, parts = random.Random(letters), []
    for seq in range(1, MESSAGES + 1):
        parts += oslo.say("".join(chance.choices(LETTERS, k=letters)), seq)
    for data in parts:
        paris.hear(data)
    names = [HistoryEntry(message_id) for _, message_id in oslo.room.channel.order()]
    kept = [sds.stored_form(data) for data in parts]
    assert paris.room.channel.on_want(names) == (kept, [])
    assert paris.log.count == len(parts) == MESSAGES * (2 if letters == 2_000 else 1)
    ratio = 1 + paris.close() / len(parts) / RECORD_SIZE
    print(f"{letters} letters: {ratio:.2f} times a record")
    assert ratio <= 2
    oslo.close()


def test_a_text_is_taken_from_the_record_of_its_own_message_alone(tmp_path: Path) -> None:
    oslo, paris = Site("oslo", OSLO, tmp_path), Site("paris", PARIS, tmp_path)
    text = "x" * 300
    (data,) = oslo.say(text, 1)
    paris.say("of ours", 1)
    paris.hear(data)
    ((_, name),) = oslo.room.channel.order()
    assert paris.texts.text(2, name) == text.encode()
    assert paris.texts.text(2, "0" * 64) is None, "another message's"
    assert paris.texts.text(1, name) is None, "of another kind"
    assert paris.texts.text(3, name) is None, "not told of yet"
    assert oslo.texts.text(1, name) is None, "ours"
    assert paris.log.source is not None
    paris.log.source.oldest_segment = 1
    assert paris.texts.text(2, name) is None, "dropped, though its bytes can still be read"
    assert not paris.texts.keeps(2)
    paris.log.source.oldest_segment = 0
    assert paris.texts.text(2, name) == text.encode() and paris.texts.keeps(2)
    paris.log.ring[paris.log.offset(2) + rec.BODY + 100] ^= 1
    assert paris.texts.text(2, name) is None and paris.texts.keeps(2), "broken, perhaps mended soon"
    source, paris.log.source = paris.log.source, None
    assert paris.texts.text(2, name) is None and paris.texts.keeps(2), "the replica is away"
    assert source is not None
    source.oldest_segment, paris.log.source = 1, source
    assert paris.texts.text(2, name) is None and not paris.texts.keeps(2)
    paris.close()
    oslo.close()
