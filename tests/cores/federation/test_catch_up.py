"""A participant that was away for long is brought up to date, however little room it has."""

from appliance.cores.federation.parameters import Parameters
from appliance.formats.causal import message as sds
from tests.cores.federation.participants import NOW, Participant, content, sync
from tests.cores.federation.test_channel import chain


def test_a_full_share_of_the_buffer_gives_way_to_what_the_others_wait_for() -> None:
    me = Participant(parameters=Parameters(waiting_max=40, filter=False))
    messages = chain(60)
    for message in messages[1:]:
        me.hear(message)
    assert len(me.state.incoming) == 10
    assert {m.message_id for m in messages[1:11]} == set(me.state.incoming.waiting)
    me.hear(messages[0])
    assert me.ids() == [m.message_id for m in messages[:10]]  # the eleventh made room
    for message in messages:
        me.hear(message)
    assert len(me.ids()) == 60
    me.channel.check()


def test_of_messages_sent_again_together_the_last_carries_the_filter() -> None:
    me = Participant()
    for number in range(5):
        me.say(b"%d" % number)
    before = len(me.out)
    me.take(me.channel.on_link_up(me.now))
    me.take(me.channel.on_tick(me.now))
    again = [sds.decode(b.data) for b in me.out[before:] if b.kind == "content"]
    assert [m.bloom_filter is not None for m in again] == [False] * 4 + [True]


def test_while_the_bearer_has_no_room_nothing_is_sent_again() -> None:
    me = Participant()
    me.say()
    me.hear(sync("carol"))
    me.take(me.channel.on_link_up(me.now))
    before = len(me.out)
    me.take(me.channel.on_tick(me.now, hold=True))
    assert not [b for b in me.out[before:] if b.kind == "content"]
    assert me.channel.deadline() <= me.now + 10
    me.now += 10
    me.take(me.channel.on_tick(me.now))
    assert [b for b in me.out[before:] if b.kind == "content"]


def test_a_site_that_takes_much_names_all_of_it_to_its_sender() -> None:
    me = Participant(parameters=Parameters(sync_reply_ms=500, owed_entries=900, filter=False))
    messages = [content("bob", b"%d" % i, NOW + i) for i in range(2_000)]
    for message in messages:
        me.hear(message)
    me.wait(3_000)
    named = {e.message_id for b in me.out for e in sds.decode(b.data).causal_history}
    assert named == {m.message_id for m in messages}
    assert len([b for b in me.out if b.kind == "sync"]) <= 6
