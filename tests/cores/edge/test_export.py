"""All records of a room for a signed file: every one once, in order, and only for who may read."""

import pytest

from appliance.base.errors import InputError
from appliance.base.limits import EXPORTS_MAX, EXPORTS_OF_USER_MAX
from appliance.cores.edge.export import RoomExport
from appliance.formats.client.fields import id_bytes
from appliance.formats.client_errors import (
    Busy,
    FieldInvalid,
    Forbidden,
    RoomUnknown,
    TokenExpired,
)
from appliance.formats.record import SEQ
from appliance.formats.room_name import room_id_of
from tests.cores.edge.test_history import written
from tests.cores.edge.world import World, token


def placed(world: World, export: RoomExport) -> RoomExport:
    try:
        for _ in range(100):
            if export.locate():
                return export
            world.tick(1)
            world.process()
        raise AssertionError("the room is not found")
    except InputError:
        export.close()
        raise


def ops(world: World, export: RoomExport) -> list[int]:
    found: list[int] = []
    while len(found) < export.record_count:
        raw = export.part()
        found += [
            int.from_bytes(raw[at + SEQ : at + SEQ + 8], "little")
            for at in range(0, len(raw), 2240)
        ]
        world.tick(1)
    return found


def test_a_room_is_read_whole_while_it_is_written_to() -> None:
    world, session, rooms = written([0, 1, 0, 2] * 75)  # over several segments
    export = placed(world, world.edge.readers.export("10.0.0.1", token(), id_bytes(rooms[0]), None))
    assert (export.first_op, export.last_op) == (1, 151)
    world.say(session, rooms[0], 151, 1)
    world.process()
    assert ops(world, export) == list(range(1, 152))


def test_an_export_ends_where_it_was_told_to_and_refuses_what_is_not_there() -> None:
    world, _, rooms = written([0] * 9)
    room = id_bytes(rooms[0])
    export = placed(world, world.edge.readers.export("10.0.0.1", token(), room, 4))
    assert ops(world, export) == [1, 2, 3, 4]
    for until_op in (0, 11):
        with pytest.raises(FieldInvalid, match="allowed: 1 to 10"):
            placed(world, world.edge.readers.export("10.0.0.1", token(), room, until_op))


def test_only_who_may_read_the_room_reads_it() -> None:
    world, _, rooms = written([0] * 3)
    for rights in ({"other": ["read"]}, {"*": ["send"]}):
        export = world.edge.readers.export(
            "10.0.0.1", token(rights=rights), id_bytes(rooms[0]), None
        )
        with pytest.raises(Forbidden):
            placed(world, export)
    with pytest.raises(RoomUnknown):
        placed(world, world.edge.readers.export("10.0.0.1", token(), room_id_of("nowhere"), None))


def test_a_user_has_so_many_files_under_way_and_so_have_all() -> None:
    world, _, rooms = written([0] * 3)
    exports: list[RoomExport] = []

    def begin(user: str) -> None:
        bearer = token(user)
        exports.append(world.edge.readers.export("10.0.0.1", bearer, id_bytes(rooms[0]), None))

    for number in range(EXPORTS_MAX):
        begin(f"user-{number // EXPORTS_OF_USER_MAX}")
    with pytest.raises(Busy, match=f"^{EXPORTS_MAX} files of rooms are being made$"):
        begin("somebody-else")
    with pytest.raises(Busy, match="for this user"):
        begin("user-0")
    exports.pop(0).close()
    begin("user-0")


def test_a_reading_ends_with_its_token() -> None:
    world, _, rooms = written([0] * 3)
    export = placed(world, world.edge.readers.export("10.0.0.1", token(), id_bytes(rooms[0]), None))
    world.edge.on_tick(world.now_ns, world.now_us + 3600 * 1_000_000)
    with pytest.raises(TokenExpired):
        export.part()
