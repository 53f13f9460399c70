"""Which superblock counts, after every crash of an update and all damage to its copies."""

from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest

from appliance.base.checksum import blake2b_256
from appliance.base.layout import offset_of
from appliance.base.limits import SECTOR_SIZE, SUPERBLOCK_COPIES
from appliance.cores.vsr.open import VolumeUnusable, choose, load
from appliance.cores.vsr.recovery import Found
from appliance.cores.vsr.remedies import remedy_of
from appliance.formats import superblock as sb
from appliance.formats.geometry import SMALL, SUPERBLOCK_COPY_SIZE
from appliance.formats.superblock import Superblock
from tests.cores.vsr.chain import ROOT, chain
from tests.cores.vsr.disk import Disk
from tests.cores.vsr.group import Group


def disk() -> Disk:
    return Group(1, segments_max=2, start=[]).nodes[0].disk


FIRST = disk().superblock()


def grown(old: Superblock, **changes: Any) -> Superblock:
    return replace(old, sequence=old.sequence + 1, parent=sb.digest(old), **changes)


def copies(block: Superblock) -> list[bytes | None]:
    return [sb.encode(block, copy) for copy in range(SUPERBLOCK_COPIES)]


def chosen(found: list[bytes | None]) -> tuple[bytes, list[int]]:
    """(digest of what counts, copies to be repaired)."""
    block, repairs = choose(found)
    return sb.digest(block), repairs


def halt_of(found: list[bytes | None]) -> str:
    with pytest.raises(VolumeUnusable) as raised:
        choose(found)
    return raised.value.halt


OLD = grown(FIRST, view=3, log_view=2)
NEW = grown(OLD, view=4, log_view=4, view_headers=[chain(1)[1].header, ROOT])
NEWER = grown(NEW, view=5)
OLD_ID, NEW_ID = sb.digest(OLD), sb.digest(NEW)


# --- updates and crashes --------------------------------------------------------------------------


def test_a_formatted_volume_is_whole() -> None:
    assert chosen(copies(FIRST)) == (sb.digest(FIRST), [])
    FIRST.check()
    assert FIRST.view_headers[0].raw == ROOT.raw


def test_recovery_superblock_each_torn_step() -> None:
    """Copies are written one after the other, sector by sector: either superblock, never a halt."""
    sectors = SUPERBLOCK_COPY_SIZE // SECTOR_SIZE
    for written in range(SUPERBLOCK_COPIES * sectors + 1):
        found = b"".join(sb.encode(OLD, copy) for copy in range(SUPERBLOCK_COPIES))
        update = b"".join(sb.encode(NEW, copy) for copy in range(SUPERBLOCK_COPIES))
        found = update[: written * SECTOR_SIZE] + found[written * SECTOR_SIZE :]
        raw = [
            found[i * SUPERBLOCK_COPY_SIZE : (i + 1) * SUPERBLOCK_COPY_SIZE]
            for i in range(SUPERBLOCK_COPIES)
        ]
        found_id, repairs = chosen(list(raw))
        whole = written // sectors
        assert found_id == (NEW_ID if whole >= 2 else OLD_ID)
        wanted = copies(NEW if whole >= 2 else OLD)
        assert sorted(repairs) == [i for i in range(SUPERBLOCK_COPIES) if raw[i] != wanted[i]]


def test_a_confirmed_update_is_found_whatever_copy_is_lost_and_whatever_follows_is_torn() -> None:
    """Confirmed = three copies. One more may rot, and the next update may have reached one copy."""
    for confirmed in combinations(range(SUPERBLOCK_COPIES), 3):
        for rotten in range(SUPERBLOCK_COPIES):
            found = [sb.encode(NEW if i in confirmed else OLD, i) for i in range(SUPERBLOCK_COPIES)]
            found[rotten] = bytes(SUPERBLOCK_COPY_SIZE)
            assert chosen(list(found))[0] == NEW_ID
            found[rotten] = sb.encode(NEWER, rotten)
            assert chosen(list(found))[0] == NEW_ID


def test_a_lone_newest_copy_is_not_chosen() -> None:
    found = copies(OLD)
    found[2] = sb.encode(NEW, 2)
    assert chosen(found) == (OLD_ID, [2])


def test_an_update_torn_beside_a_rotten_copy_is_found() -> None:
    """Swarm seed 3033115067: copy 0 rotten, copy 1 new, copy 2 torn, copy 3 still old."""
    assert chosen([None, sb.encode(NEW, 1), None, sb.encode(OLD, 3)]) == (NEW_ID, [0, 2, 3])


def test_every_tear_beside_every_rotten_copy_finds_what_was_confirmed() -> None:
    """Copies are written in order, three confirm; a rotten one is unreadable or very old."""
    ancient = replace(OLD, sequence=0)
    for rotten in range(SUPERBLOCK_COPIES):
        for torn in range(SUPERBLOCK_COPIES):
            found: list[bytes | None] = [
                sb.encode(NEW if i < torn else OLD, i) for i in range(SUPERBLOCK_COPIES)
            ]
            found[torn] = None
            for left in (None, sb.encode(ancient, rotten)):
                found[rotten] = left
                digest = chosen(list(found))[0]
                confirmed = torn == 3
                assert digest == NEW_ID if confirmed else digest in (OLD_ID, NEW_ID)


def test_two_lone_copies_that_do_not_follow_each_other_halt() -> None:
    other = replace(NEW, parent=bytes(32))
    assert halt_of([None, sb.encode(other, 1), None, sb.encode(OLD, 3)]) == "SUPERBLOCK_QUORUM_LOST"
    assert halt_of([None, sb.encode(NEWER, 1), None, sb.encode(OLD, 3)]) == "SUPERBLOCK_QUORUM_LOST"


# --- halts ----------------------------------------------------------------------------------------


def test_no_readable_copy_halts() -> None:
    assert halt_of([None] * 4) == "SUPERBLOCK_MISSING"
    assert halt_of([bytes(SUPERBLOCK_COPY_SIZE)] * 4) == "SUPERBLOCK_MISSING"


def test_recovery_superblock_three_bad_halts() -> None:
    for left in range(SUPERBLOCK_COPIES):
        found: list[bytes | None] = [None] * 4
        found[left] = sb.encode(NEW, left)
        assert halt_of(found) == "SUPERBLOCK_QUORUM_LOST"


def test_two_bad_copies_are_survived() -> None:
    for lost in combinations(range(SUPERBLOCK_COPIES), 2):
        found = copies(NEW)
        for i in lost:
            found[i] = None
        assert chosen(found) == (NEW_ID, list(lost))


def test_four_different_superblocks_halt() -> None:
    assert (
        halt_of([sb.encode(replace(NEW, sequence=n), n) for n in range(4)])
        == "SUPERBLOCK_QUORUM_LOST"
    )


def test_recovery_superblock_fork_halts() -> None:
    other = replace(NEW, incarnation=77)
    assert halt_of([*copies(NEW)[:2], *copies(other)[2:]]) == "SUPERBLOCK_FORK"
    assert halt_of([*copies(NEW)[:3], copies(other)[3]]) == "SUPERBLOCK_FORK"


def test_a_skipped_parent_halts() -> None:
    """A lone copy two ahead says that the update between was completed, and is lost."""
    found = copies(OLD)
    found[0] = sb.encode(NEWER, 0)
    assert halt_of(found) == "SUPERBLOCK_PARENT_SKIPPED"


def test_two_superblocks_that_do_not_connect_halt() -> None:
    stranger = replace(OLD, incarnation=77)
    assert halt_of([*copies(NEW)[:2], *copies(stranger)[2:]]) == "SUPERBLOCK_NOT_CONNECTED"


@pytest.mark.parametrize("change", [{"view": 2, "log_view": 2}, {"log_view": 1}, {"commit_max": 4}])
def test_a_superblock_that_goes_back_halts(change: dict[str, int]) -> None:
    old = replace(OLD, view=3, log_view=2, commit_max=5)
    new = grown(old, **{"commit_max": 5, **change})
    assert halt_of([*copies(new)[:2], *copies(old)[2:]]) == "SUPERBLOCK_REGRESSED"


def test_a_checkpoint_that_goes_back_halts() -> None:
    header = chain(48)[48].header
    ahead = replace(OLD, commit_max=50, checkpoint=replace(OLD.checkpoint, header=header))
    behind = grown(ahead, checkpoint=OLD.checkpoint)
    assert halt_of([*copies(behind)[:2], *copies(ahead)[2:]]) == "SUPERBLOCK_REGRESSED"


def test_a_new_epoch_may_begin_its_views_anew() -> None:
    new = grown(OLD, epoch=OLD.epoch + 1, view=0, log_view=0)
    assert chosen([*copies(new)[:2], *copies(OLD)[2:]])[0] == sb.digest(new)


# --- a program of before --------------------------------------------------------------------------


def later(block: Superblock, copy: int) -> bytes:
    """As a later version would write it, which knows a fact more."""
    raw = bytearray(sb.encode(block, copy))
    raw[offset_of(sb.SUPERBLOCK, "reserved_e")] = 7
    raw[:32] = blake2b_256(bytes(raw[offset_of(sb.SUPERBLOCK, "magic") :]))
    return bytes(raw)


@pytest.mark.parametrize(
    "found",
    [
        [later(NEW, copy) for copy in range(4)],
        [*(later(NEW, copy) for copy in range(3)), sb.encode(OLD, 3)],  # one copy is behind
        [None, later(NEW, 1), later(NEW, 2), sb.encode(OLD, 3)],  # and one has rotted
        [None, later(NEW, 1), None, None],
        [later(NEWER, 0), *(later(NEW, copy) for copy in range(1, 4))],
    ],
)
def test_what_a_later_version_has_confirmed_is_refused_by_name_and_not_called_lost(
    found: list[bytes | None],
) -> None:
    with pytest.raises(VolumeUnusable) as raised:
        choose(found)
    assert raised.value.halt == "VOLUME_NEWER"
    assert "later version" in str(raised.value) and "nothing is lost" in str(raised.value)
    assert "restore" not in str(raised.value)
    assert "`tigerchat recover`" not in remedy_of("VOLUME_NEWER")


@pytest.mark.parametrize("written", [0, 1, 2])
def test_what_a_later_version_began_to_write_and_never_confirmed_keeps_no_program_out(
    written: int,
) -> None:
    found = [(later(NEW, i) if i < written else sb.encode(OLD, i)) for i in range(4)]
    assert chosen(list(found))[0] == OLD_ID


# --- misplaced copies -----------------------------------------------------------------------------


def test_a_misplaced_duplicate_does_not_count_twice() -> None:
    twice = sb.encode(NEW, 0)
    assert halt_of([twice, twice, None, None]) == "SUPERBLOCK_QUORUM_LOST"
    assert chosen([twice, twice, *copies(OLD)[2:]])[0] == OLD_ID


def test_a_copy_with_an_impossible_index_counts_as_its_place() -> None:
    strange = sb.encode(NEW, 9)
    assert chosen([strange, sb.encode(NEW, 1), None, None]) == (NEW_ID, [2, 3, 0])


def test_copies_are_repaired_in_an_order_that_never_loses_the_last_one() -> None:
    """First copies that exist nowhere, then those that lie elsewhere, then misplaced ones."""
    whole = copies(NEW)
    assert choose([whole[0], whole[1], whole[2], None])[1] == [3]
    assert choose([whole[0], whole[1], None, whole[2]])[1] == [2, 3]
    assert choose([whole[1], whole[0], None, None])[1] == [2, 3, 0, 1]
    assert choose([whole[0], None, whole[1], None])[1] == [3, 1, 2]


def test_a_crash_during_any_repair_leaves_the_same_superblock() -> None:
    whole = copies(NEW)
    for found in (
        [whole[1], whole[0], None, None],
        [whole[0], None, whole[1], None],
        [None, whole[0], None, whole[1]],
        [*whole[:2], *copies(OLD)[2:]],
        [whole[0], *copies(OLD)[1:]],
    ):
        block, repairs = choose(list(found))
        for done in range(len(repairs) + 1):
            for torn in (False, True):
                now = list(found)
                for i in repairs[:done]:
                    now[i] = sb.encode(block, i)
                if torn and done < len(repairs):
                    now[repairs[done]] = bytes(SUPERBLOCK_COPY_SIZE)
                assert chosen(now)[0] == sb.digest(block)


# --- the rings ------------------------------------------------------------------------------------


def loaded(on: Disk, at: int):
    return load(SMALL, on.flush_all, on.read_many).slots[at]


def stored() -> Disk:
    out = disk()
    for op, message in chain(20).items():
        out.poke(out.witness_at(op), message.header.raw.ljust(SECTOR_SIZE, b"\0"))
        whole = message.header.raw + bytes(message.body)
        out.poke(out.prepare_at(op), whole.ljust(SECTOR_SIZE, b"\0"))
    return out


def test_a_stored_chain_is_loaded() -> None:
    on = stored()
    slots = load(SMALL, on.flush_all, on.read_many).slots
    assert len(slots) == SMALL.slot_count
    for op, message in chain(20).items():
        assert (
            slots[op].witness_header.digest
            == slots[op].prepare_header.digest
            == message.header.digest
        )
    assert slots[0].prepare_header.raw == ROOT.raw
    assert all((s.witness, s.prepare) == (Found.NIL, Found.NIL) for s in slots[21:])


@pytest.mark.parametrize("offset, length", [(0, 128), (128, 128), (256, SECTOR_SIZE - 256)])
def test_recovery_padding_corrupt(offset: int, length: int) -> None:
    """Header, body, padding: any flipped bit makes the prepare bad, not the witness."""
    for at in range(offset, offset + length, 37):
        on = stored()
        on.flip(on.prepare_at(7) + at)
        slot = loaded(on, 7)
        assert (slot.witness, slot.prepare) == (Found.OP, Found.BAD)


def test_a_witness_with_padding_is_bad_and_so_is_a_reserved_entry() -> None:
    on = stored()
    on.flip(on.witness_at(7) + 200)
    on.flip(on.witness_at(30) + 200)
    on.flip(on.prepare_at(30) + 3000)
    assert loaded(on, 7).witness == Found.BAD
    assert (loaded(on, 30).witness, loaded(on, 30).prepare) == (Found.BAD, Found.BAD)


def test_a_sector_that_cannot_be_read_is_bad() -> None:
    on = stored()
    on.spoil(on.prepare_at(7))
    on.spoil(on.witness_at(8))
    assert (loaded(on, 7).witness, loaded(on, 7).prepare) == (Found.OP, Found.BAD)
    assert (loaded(on, 8).witness, loaded(on, 8).prepare) == (Found.BAD, Found.OP)


def test_recovery_misdirected_prepare_write() -> None:
    on = stored()
    on.poke(on.prepare_at(9), on.peek(on.prepare_at(7), SECTOR_SIZE))
    assert (loaded(on, 9).witness, loaded(on, 9).prepare) == (Found.OP, Found.BAD)


def test_recovery_misdirected_witness_write() -> None:
    on = stored()
    on.poke(on.witness_at(9), on.peek(on.witness_at(7), SECTOR_SIZE))
    assert (loaded(on, 9).witness, loaded(on, 9).prepare) == (Found.BAD, Found.OP)
