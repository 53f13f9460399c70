"""Whose a msg_id is: of the user and room that used it first, while that segment is open."""

from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.formats.envelope import (
    OPERATION_APPEND,
    OPERATION_APPEND_BINDING,
    OPERATION_APPEND_SPARING,
)
from appliance.formats.geometry import SMALL
from appliance.formats.imported import encode_head
from appliance.formats.record import KIND_AUDIT, KIND_IMPORTED, KIND_MESSAGE
from appliance.formats.session import DUPLICATE, MSG_ID_TAKEN, OK, SEQUENCE_GAP
from tests.cores.rooms.shard import Result, Shard, create, make, shard_record
from tests.cores.rooms.test_carrying import foreign, shared

VICTIM, MALLORY = 1, 2
ID = b"what Anna said  "
SAID = encode_head(1, "Ada") + b"said"


def opened(operation: int = OPERATION_APPEND_BINDING) -> Shard:
    shard = Shard(SMALL)
    for room in (0, 1):
        assert shard.one(create(room)).code == OK
    shard.operation = operation
    return shard


def said(
    seq: int,
    *,
    author: int = VICTIM,
    device: int = 0,
    room: int = 0,
    kind: int = KIND_MESSAGE,
    msg_id: bytes = ID,
) -> bytes:
    device += 10 * author
    return make(room, device, seq, author=author, kind=kind, body=SAID, msg_id=msg_id)


def refused(result: Result) -> bool:
    """Whether nothing else is told than that the id is taken."""
    if result.code == MSG_ID_TAKEN:
        assert result == Result(MSG_ID_TAKEN, 0, 0, 0, bytes(32))
    return result.code == MSG_ID_TAKEN


@pytest.mark.parametrize("kinds", [(0, 0), (0, 10), (10, 0), (10, 10)])
@pytest.mark.parametrize(
    ("other", "takes"),
    [
        ({"author": MALLORY}, True),
        ({"author": MALLORY, "room": 1}, True),
        ({"room": 1}, True),
        ({"room": 1, "device": 1}, True),
        ({"device": 1}, False),  # the same user's, in its room: a device that begins anew
        ({"author": MALLORY, "msg_id": b"what Anna said ?"}, False),
    ],
)
def test_an_id_is_its_user_s_in_its_room(
    other: dict[str, int], takes: bool, kinds: tuple[int, int]
) -> None:
    shard = opened()
    assert shard.one(said(1, kind=kinds[0])).code == OK
    count = shard.rooms.log_seq
    assert refused(shard.one(said(1, kind=kinds[1], **other))) == takes
    assert shard.rooms.log_seq == count + (not takes)


def test_who_was_refused_goes_on_under_another_id_with_the_same_number() -> None:
    shard = opened()
    assert shard.one(said(1)).code == OK
    for _ in range(2):  # a refusal leaves no trace
        assert refused(shard.one(said(1, author=MALLORY)))
    behind = said(2, author=MALLORY, msg_id=b"of his own      ")
    assert shard.one(behind).code == SEQUENCE_GAP
    assert shard.one(said(1, author=MALLORY, msg_id=b"of his own      ")).code == OK
    again = shard.one(said(1))  # whose it is may ask again as ever
    assert (again.code, again.log_seq) == (DUPLICATE, 3)


def test_within_a_batch_too_and_of_a_device_that_says_more_in_it() -> None:
    shard = opened()
    own = [said(n, author=MALLORY, msg_id=b"own %12d" % n) for n in (1, 2)]
    results = shard.commit(
        said(1), *own, said(3, author=MALLORY), said(2, msg_id=b"next".ljust(16))
    )
    assert [result.code for result in results] == [OK, OK, OK, MSG_ID_TAKEN, OK]


@pytest.mark.parametrize("operation", [OPERATION_APPEND, OPERATION_APPEND_BINDING])
def test_only_a_binding_prepare_refuses_and_it_knows_what_came_before(operation: int) -> None:
    """A log of before means what it meant."""
    shard = opened(OPERATION_APPEND)
    assert shard.one(said(1)).code == OK
    shard.operation = operation
    taken = refused(shard.one(said(1, author=MALLORY)))
    assert taken == (operation == OPERATION_APPEND_BINDING)


def test_what_another_site_made_is_taken_whatever_its_id_and_keeps_it() -> None:
    shard = shared()
    shard.operation = OPERATION_APPEND_BINDING
    first, second = foreign(1), foreign(2)
    taken = first[16:32]
    assert shard.one(said(1, msg_id=second[16:32])).code == OK
    assert shard.one(first).code == OK
    assert shard.one(second).code == OK  # or nothing behind it would come any more
    for author in (77, VICTIM):  # its author there is no user here, though of the same name
        assert refused(shard.one(said(1, author=author, device=1, msg_id=taken)))


def test_records_of_the_shard_itself_are_taken_whatever_their_ids() -> None:
    shard = opened()
    audit = shard_record(KIND_AUDIT, 1, b"an act")
    assert shard.one(said(1, msg_id=audit[16:32])).code == OK
    assert shard.one(audit).code == OK


def test_when_the_segment_is_sealed_its_ids_are_free() -> None:
    shard = opened()
    assert shard.one(said(1)).code == OK
    number = 1
    while shard.rooms.log_seq < SMALL.segment_records - 1:
        assert refused(shard.one(said(1, author=MALLORY)))
        number += 1
        assert shard.one(said(number, msg_id=b"filling %8d" % number)).code == OK
    assert refused(shard.one(said(1, author=MALLORY)))
    last = said(number + 1, msg_id=b"the last of all ")
    results = shard.commit(last, said(1, author=MALLORY), said(1, author=3))
    assert [result.code for result in results] == [OK, OK, MSG_ID_TAKEN]


class Saying(NamedTuple):
    """What somebody says next."""

    author: int
    room: int
    msg_id: int
    kind: int


KINDS = (KIND_MESSAGE, KIND_MESSAGE, KIND_MESSAGE, KIND_IMPORTED)
OPERATIONS = (OPERATION_APPEND_BINDING,) * 4 + (OPERATION_APPEND, OPERATION_APPEND_SPARING)
SAYINGS = st.builds(
    Saying,
    st.integers(1, 3),
    st.integers(0, 1),
    st.integers(0, 40),
    st.sampled_from(KINDS),
)
BATCHES = st.lists(
    st.tuples(
        st.lists(SAYINGS, min_size=1, max_size=SMALL.records_max),
        st.sampled_from(OPERATIONS),
        st.booleans(),
    ),
    min_size=1,
    max_size=60,
)


@settings(max_examples=60, deadline=None)
@given(BATCHES)
def test_who_has_restored_the_state_judges_as_who_was_there(
    batches: list[tuple[list[Saying], int, bool]],
) -> None:
    """And both as a dictionary that is emptied with each segment."""
    there, later = opened(), opened()
    for seq in range(1, SMALL.segment_records - 10):  # so that some seal it, and others do not
        filling = said(seq, msg_id=b"filling %8d" % seq)
        assert there.one(filling) == later.one(filling)
    holders: dict[bytes, tuple[int, int]] = {}
    counts = {(VICTIM, 0): SMALL.segment_records - 11}
    for sayings, operation, restores in batches:
        records, wanted = [], []
        log_seq = there.rooms.log_seq
        for author, room, number, kind in sayings:
            msg_id = b"id %13d" % number
            seq = counts.get((author, room), 0) + 1
            records.append(said(seq, author=author, room=room, kind=kind, msg_id=msg_id))
            if operation == OPERATION_APPEND_SPARING:
                wanted.append(False)
                continue
            holder = holders.get(msg_id, (author, room))
            binds = operation == OPERATION_APPEND_BINDING
            wanted.append(binds and holder != (author, room))
            if not wanted[-1]:
                counts[author, room], log_seq = seq, log_seq + 1
                holders.setdefault(msg_id, (author, room))
                if log_seq % SMALL.segment_records == 0:
                    holders.clear()
        there.operation = later.operation = operation
        results = there.commit(*records)
        assert later.commit(*records) == results
        assert [refused(result) for result in results] == wanted
        if restores:
            later = later.restarted(later.checkpoint())
            later.operation = operation
