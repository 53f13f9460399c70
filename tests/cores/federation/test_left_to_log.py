"""A long text of another site is kept once, in the site's log, and said from there."""

from dataclasses import replace

import pytest

from appliance.base.limits import CHANNEL_TEXT_KEPT_MAX
from appliance.cores.federation import effects as told
from appliance.cores.federation.exchange import Exchange, Member, SendFrame
from appliance.cores.federation.opening import LogRecord
from appliance.cores.federation.state import InLog
from appliance.formats.causal import link as frames
from appliance.formats.causal import message as sds
from appliance.formats.causal import rows
from appliance.formats.causal.message import HistoryEntry, Message
from appliance.simulation.federation.store import MemoryStore
from tests.cores.federation.participants import CHANNEL, NOW, Participant, content

LONG = bytes(number * 37 % 251 + 1 for number in range(CHANNEL_TEXT_KEPT_MAX + 1))
SHORT = LONG[:-1]


class Logged(Participant):
    """With the log of its site, `log`, whose records can be read again."""

    def __post_init__(self) -> None:
        self.log: list[LogRecord] = []
        self.store = MemoryStore(self.log)
        super().__post_init__()

    def commit(self, due: told.Append) -> LogRecord:
        record = replace(super().commit(due), in_log=InLog(len(self.log) + 1, due.content))
        self.log.append(record)
        return record

    def kept(self, message: Message) -> bytes:
        """The row that the store has of it."""
        assert message.lamport is not None
        return self.store.rows[rows.ordered_key(rows.LOG, message.lamport, message.message_id)]

    def answer(self, message: Message) -> tuple[list[bytes], list[str]]:
        return self.channel.on_want([HistoryEntry(message.message_id)])

    def become_another(self) -> None:
        """The first record cannot be read as what it was."""
        self.log[0] = replace(self.log[0], message_id="another")


@pytest.mark.parametrize("text", [SHORT, LONG], ids=["short", "long"])
def test_what_is_left_to_the_log_is_said_byte_for_byte(text: bytes) -> None:
    me, message = Logged(), content(text=text)
    me.hear(message)
    raw = sds.encode(message)
    assert (len(me.kept(message)) < len(raw) - len(text) + 64) == (text == LONG)
    for _ in range(2):
        assert me.answer(message) == ([raw], [])
        assert me.state.content_of(message.message_id) == text
        me.open()


def test_before_the_log_has_committed_it_the_store_has_all_of_it() -> None:
    me, message = Logged(quorum=False), content(text=LONG)
    me.hear(message)
    me.open()
    assert [due.content for due in me.pending] == [LONG]
    me.quorum = True
    me.take([])
    assert me.answer(message) == ([sds.encode(message)], [])


def test_a_repair_is_answered_from_the_log() -> None:
    me, message = Logged(), content(text=LONG)
    me.hear(message)
    me.state.responses.schedule(message.message_id, me.now)
    me.wait(1)
    assert sds.encode(message) in [sent.data for sent in me.out]
    me.become_another()
    me.state.responses.schedule(message.message_id, me.now)
    me.wait(1)
    assert me.state.dropped["repair_gone"] == 1


def test_a_copy_is_known_whether_or_not_the_log_can_be_read() -> None:
    me, message = Logged(), content(text=LONG)
    me.hear(message)
    kept = me.kept(message)
    me.hear(message)
    me.become_another()
    me.hear(message)
    assert me.state.dropped == {"duplicate": 2} and me.kept(message) == kept


def test_a_text_that_came_after_its_record_is_left_to_the_log_too() -> None:
    """As after a takeover: the node before had the bytes, this one learns them."""
    before, message = Logged(), content(text=LONG)
    before.hear(message)
    me = Logged()
    me.log += before.log
    me.take(me.channel.replay(me.log, NOW))
    assert me.answer(message) == ([], [message.message_id])
    me.hear(message)
    assert me.state.counts["bytes_learned"] == 1
    assert len(me.kept(message)) < len(before.kept(message)) + 16
    assert me.answer(message) == ([sds.encode(message)], [])


def wanted(me: Logged, message: Message) -> list[str]:
    """Kinds of the frames that answer another site which wants the message."""
    exchange = Exchange("me")
    exchange.share(CHANNEL, me.channel, {"me": Member(b""), "bob": Member(b"")}, NOW)
    exchange.on_link(1, "bob")
    exchange.on_frame(1, frames.encode(frames.Hello("bob", (CHANNEL,))), NOW)
    want = frames.encode(frames.Want(CHANNEL, (HistoryEntry(message.message_id),)))
    effects = exchange.on_frame(1, want, NOW)
    return [effect.kind for effect in effects if isinstance(effect, SendFrame)]


def test_what_the_log_dropped_is_not_held_and_of_what_it_cannot_read_nothing_is_said() -> None:
    me, message = Logged(), content(text=LONG)
    me.hear(message)
    assert wanted(me, message) == ["content"]
    me.become_another()
    assert wanted(me, message) == []
    me.log.clear()
    assert wanted(me, message) == ["not_held"]
