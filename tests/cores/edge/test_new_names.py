"""What rooms are called, by what was heard of it: the same in whatever order it was heard."""

import random

from appliance.cores.edge.new_names import NewNames
from appliance.formats.renaming import Renaming, encode_renaming
from appliance.formats.room_name import room_id_of

Act = tuple[int, bytes]


def act(at_us: int, room: str, name: str, number: int, said_us: int = 0) -> Act:
    return at_us, encode_renaming(Renaming(room, name, number, "anna", said_us))


def heard(*acts: Act) -> NewNames:
    names = NewNames()
    names.learn(acts)
    return names


def test_a_room_has_the_newest_of_its_names_and_all_of_them_lead_to_it() -> None:
    names = heard(act(10, "a", "b", 1), act(20, "a", "c", 2))
    assert (names.shown("a"), names.shown("elsewhere")) == ("c", "elsewhere")
    assert [names.room_of(name) for name in ("a", "b", "c", "d")] == [None, "a", "a", None]
    for name in ("b", "c"):
        assert names.leads_to(room_id_of(name)) == room_id_of("a")
    assert names.leads_to(room_id_of("d")) == room_id_of("d")
    assert names.next_number("a") == 3 and names.next_number("d") == 1
    assert len(names) == 2


def test_a_name_is_the_room_s_that_got_it_first() -> None:
    """The other shows what it was called before."""
    names = heard(act(5, "z", "y", 1), act(10, "a", "b", 1), act(11, "z", "b", 2))
    assert (names.shown("a"), names.shown("z"), names.room_of("b")) == ("b", "y", "a")


def test_what_is_stated_anew_counts_as_when_it_was_said() -> None:
    """The record that said it is dropped."""
    stated = act(90, "z", "b", 1, said_us=10)
    assert heard(act(50, "a", "b", 1), stated).room_of("b") == "z"
    assert heard(act(50, "z", "c", 1), stated).shown("z") == "c"


def test_an_old_name_may_be_taken_again_and_the_first_one_too() -> None:
    names = heard(act(10, "a", "b", 1), act(20, "a", "c", 2), act(30, "a", "b", 3))
    assert names.shown("a") == "b"
    names.learn([act(40, "a", "a", 4)])
    assert names.shown("a") == "a" and names.room_of("b") == "a"


def test_of_two_that_knew_nothing_of_each_other_the_later_one_is_shown() -> None:
    for acts in ([act(10, "a", "b", 1), act(11, "a", "c", 1)],) * 2:
        assert heard(*acts).shown("a") == heard(*reversed(acts)).shown("a") == "c"


def test_a_clock_that_was_corrected_takes_no_newer_name_away() -> None:
    assert heard(act(90, "a", "b", 1), act(20, "a", "c", 2)).shown("a") == "c"


def test_who_listens_is_told_which_rooms_are_called_otherwise_and_only_these() -> None:
    names, told = NewNames(), list[list[bytes]]()
    names.on_news = told.append
    names.learn([act(20, "a", "b", 1), act(21, "x", "y", 1), (22, b"{}")])
    assert sorted(told.pop()) == sorted([room_id_of("a"), room_id_of("x")])
    names.learn([act(20, "a", "b", 1), act(30, "a", "b", 1, said_us=20)])
    assert told == []
    names.learn([act(10, "z", "b", 1)])  # read later, said before: the name was that room's
    assert sorted(told.pop()) == sorted([room_id_of("a"), room_id_of("z")])
    assert (names.shown("a"), names.shown("z")) == ("a", "b")


def test_the_order_in_which_acts_are_heard_makes_no_difference(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(60):
        acts = []
        for at_us in range(1, chance.randint(2, 14)):
            room, name = chance.choice("abc"), chance.choice("abcdefg")
            acts.append(act(at_us, room, name, chance.randint(1, 4)))
            if chance.random() < 0.3:  # stated anew, when the record is dropped
                number = chance.randint(1, 4)
                acts[-1] = act(at_us, room, name, number)
                acts.append(act(100 + at_us, room, name, number, said_us=at_us))
        known = heard(*acts)
        mixed = chance.sample(acts, len(acts))
        cut = chance.randint(0, len(mixed))
        other = heard(*mixed[cut:])
        other.learn(mixed[:cut])
        for name in "abcdefg":
            assert known.shown(name) == other.shown(name)
            assert known.room_of(name) == other.room_of(name)
            assert known.next_number(name) == other.next_number(name)
        shown = [known.shown(room) for room in "abc"]
        given = [name for room, name in zip("abc", shown, strict=True) if name != room]
        assert len(set(given)) == len(given), "no two rooms were given one name"
