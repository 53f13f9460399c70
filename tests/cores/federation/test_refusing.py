"""A participant that is removed: nothing of it is waited for, nothing is kept for it."""

from appliance.cores.federation import effects as told
from appliance.cores.federation.parameters import Parameters
from tests.cores.federation.participants import NOW, Participant, content, sync

BOB = frozenset({"bob"})
NOBODY: frozenset[str] = frozenset()


def refuse(me: Participant, names: frozenset[str], *, alone: bool = False) -> None:
    me.take(me.channel.on_refused(names, me.now, alone=alone))
    me.channel.check()


def test_who_waits_for_a_removed_one_is_delivered_at_once_with_the_gap_said() -> None:
    me = Participant()
    lost = content("bob", b"lost", NOW)
    waits = content("bob", b"waits", NOW + 1, [lost])
    after_both = content("carol", b"after", NOW + 2, [lost, waits])
    for message in (waits, after_both):
        me.hear(message)
    assert me.ids() == []
    refuse(me, BOB)
    assert me.ids() == [after_both.message_id], "what the removed one said is not"
    (delivered,) = me.of(told.Delivered)
    assert set(delivered.gap) == {lost.message_id, waits.message_id}
    assert not me.channel.statistics().wanted


def test_what_names_a_removed_one_later_does_not_wait_for_it() -> None:
    me = Participant()
    refuse(me, BOB)
    lost = content("bob", b"lost", NOW)
    named = content("carol", b"named", NOW + 1, [lost])
    me.hear(named)
    me.hear(sync("carol", [lost, named]))
    assert me.ids() == [named.message_id]
    assert me.of(told.Delivered)[0].gap == (lost.message_id,)
    assert not me.channel.statistics().wanted


def test_nothing_is_kept_for_a_site_alone_not_even_what_found_no_room() -> None:
    me = Participant(parameters=Parameters(outgoing_max=2))
    for number in range(40):
        me.take(me.channel.on_local(b"%d" % number, me.now))
    assert me.channel.statistics().backlog == 38
    refuse(me, BOB, alone=True)
    me.wait(60_000)
    me.take(me.channel.on_local(b"alone", me.now))
    statistics = me.channel.statistics()
    assert (statistics.outgoing, statistics.backlog, statistics.log) == (0, 0, 41)
    me.open()
    assert me.channel.statistics().outgoing == me.channel.statistics().backlog == 0


def test_who_takes_part_again_is_asked_for_what_was_delivered_around() -> None:
    me = Participant()
    lost = content("bob", b"lost", NOW)
    refuse(me, BOB)
    named = content("carol", b"named", NOW + 1, [lost])
    me.hear(named)
    refuse(me, NOBODY)
    asked = [
        entry.message_id
        for found in me.wait(2_000)
        if isinstance(found, told.Retrieve)
        for entry in found.entries
    ]
    assert lost.message_id in asked
    me.hear(lost)
    assert me.ids() == [lost.message_id, named.message_id]
    assert me.of(told.Delivered)[-1].late
    assert not me.channel.statistics().wanted
