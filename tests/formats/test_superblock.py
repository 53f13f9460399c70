"""The superblock's bytes stay what they are, and a damaged copy is never taken for a good one."""

import dataclasses

import pytest

from appliance.base.checksum import blake2b_256
from appliance.base.layout import offset_of
from appliance.formats import envelope, lives, superblock
from appliance.formats.superblock import CHECKPOINT_STATE, SUPERBLOCK, CheckpointState, Superblock
from appliance.formats.volume_file import NOT_KNOWN, VolumeFile

CLUSTER = bytes(range(16))
MEMBERS = [bytes([16 + i]) * 16 for i in range(4)]

# Name, offset, size of every field, as docs/formats.md has them.
FIELDS = [
    ("digest", 0, 32),
    ("copy", 32, 2),
    ("reserved_a", 34, 6),
    ("magic", 40, 8),
    ("version", 48, 2),
    ("shard", 50, 2),
    ("reserved_b", 52, 4),
    ("sequence", 56, 8),
    ("cluster_id", 64, 16),
    ("replica_id", 80, 16),
    ("parent", 96, 32),
    ("view", 128, 4),
    ("log_view", 132, 4),
    ("epoch", 136, 4),
    ("incarnation", 140, 4),
    ("commit_max", 144, 8),
    ("sync_op_min", 152, 8),
    ("sync_op_max", 160, 8),
    ("replica_count", 168, 1),
    ("standby_count", 169, 1),
    ("replica_count_old", 170, 1),
    ("standby_count_old", 171, 1),
    ("view_headers_count", 172, 2),
    ("view_headers_kind", 174, 2),
    ("members", 176, 128),
    ("members_old", 304, 128),
    ("sync_log_seq", 432, 8),
    ("segments_max", 440, 4),
    ("reserved_c", 444, 4),
    ("checkpoint", 448, 256),
    ("members_op", 704, 8),
    ("flags", 712, 1),
    ("lives_count", 713, 1),
    ("reserved_d", 714, 2),
    ("life_gone", 716, 4),
    ("told", 720, 192),
    ("lives", 912, 136),
    ("file", 1048, 32),
    ("reserved_e", 1080, 3016),
    ("view_headers", 4096, 4096),
]
STATE_FIELDS = [
    ("header", 0, 128),
    ("checkpoint_id", 128, 32),
    ("parent", 160, 32),
    ("grandparent", 192, 32),
    ("manifest_size", 224, 8),
    ("log_seq", 232, 8),
    ("reserved", 240, 16),
]
# Digest of `example()`: it covers all 8152 bytes behind the copy index.
GOLDEN_DIGEST = "2809874eeab53d9e2a60faa298518693ae7f96c5e40794efa215698add9edf49"


def example() -> Superblock:
    """A superblock in which every field has a value of its own."""
    headers = [
        envelope.make(
            envelope.PREPARE,
            cluster=CLUSTER,
            shard=3,
            epoch=2,
            operation=16,
            view=7,
            op=op,
            commit_num=op - 2,
            aux=op,
            area=bytes([op]) * 24,
            body=b"body",
        )
        for op in (12, 11, 10)
    ]
    state = CheckpointState(
        header=headers[2],
        checkpoint_id=b"\x31" * 32,
        parent=b"\x32" * 32,
        grandparent=b"\x33" * 32,
        manifest_size=70_000,
        log_seq=4_321,
    )
    return Superblock(
        shard=3,
        sequence=41,
        cluster=CLUSTER,
        replica_id=MEMBERS[1],
        parent=b"\x2f" * 32,
        view=8,
        log_view=7,
        epoch=2,
        incarnation=1_700_000_000,
        commit_max=11,
        sync_op_min=4,
        sync_op_max=9,
        sync_log_seq=400,
        segments_max=4096,
        replica_count=3,
        standby_count=1,
        replica_count_old=1,
        standby_count_old=1,
        members=MEMBERS,
        members_old=MEMBERS[:2],
        checkpoint=state,
        view_headers_kind=superblock.KIND_DVC,
        view_headers=headers,
    )


def test_every_offset_of_the_layout_is_pinned() -> None:
    for dtype, fields in ((SUPERBLOCK, FIELDS), (CHECKPOINT_STATE, STATE_FIELDS)):
        found = [(name, offset_of(dtype, name), dtype[name].itemsize) for name in dtype.names]
        assert found == fields
        assert sum(size for _, _, size in fields) == dtype.itemsize


def test_the_bytes_of_a_known_superblock_never_change() -> None:
    raw = superblock.encode(example(), 2)
    assert raw[:32].hex() == GOLDEN_DIGEST
    assert raw[32:56].hex() == "0200000000000000" + b"TIGRSUPR".hex() + "0100030000000000"


def test_what_was_encoded_is_decoded_with_its_copy_index() -> None:
    for copy in range(4):
        found = superblock.decode(superblock.encode(example(), copy))
        assert found is not None
        decoded, index, digest = found
        assert index == copy
        assert digest == superblock.digest(example())
        for field in dataclasses.fields(Superblock):
            if field.name not in ("view_headers", "checkpoint"):
                assert getattr(decoded, field.name) == getattr(example(), field.name), field.name
        assert [h.raw for h in decoded.view_headers] == [h.raw for h in example().view_headers]
        assert superblock.encode(decoded, copy) == superblock.encode(example(), copy)


def test_what_members_told_and_the_flags_are_kept() -> None:
    told = [lives.Told(7, 5, 960, 1000), lives.Told(), lives.Told(1 << 31, 0, 1, 2), lives.Told(3)]
    own = [(7, 1 << 31), (9, 0)]
    kept = dataclasses.replace(example(), flags=lives.FLAG_REMADE, told=told, lives=own)
    found = superblock.decode(superblock.encode(kept, 1))
    assert found is not None and found[0].told == told and found[0].flags == lives.FLAG_REMADE
    assert found[0].lives == own


def test_which_file_the_volume_was_is_kept_and_not_known_of_volumes_from_before() -> None:
    was = VolumeFile(1 << 63, 1_750_000_000_000_000_001, bytes(range(16)))
    raw = superblock.encode(dataclasses.replace(example(), file=was), 1)
    found = superblock.decode(raw)
    assert found is not None and found[0].file == was
    before = superblock.decode(superblock.encode(example(), 1))
    assert before is not None and before[0].file == NOT_KNOWN
    assert not was.is_other(than=before[0].file)


@pytest.mark.parametrize(
    ("now", "other"),
    [
        (VolumeFile(7, 8, b"v" * 16), False),
        (VolumeFile(8, 8, b"v" * 16), True),
        (VolumeFile(7, 9, b"v" * 16), True),  # the number of a file that was removed, given again
        (VolumeFile(7, 8, b"w" * 16), True),
        (VolumeFile(7, 0, b"v" * 16), False),  # a kernel that does not tell
        (VolumeFile(0, 0, b"v" * 16), False),
        (VolumeFile(0, 0, b"w" * 16), True),  # another device
        (NOT_KNOWN, False),
    ],
)
def test_a_file_is_another_one_if_anything_differs_that_is_known_of_both(
    now: VolumeFile, other: bool
) -> None:
    was = VolumeFile(7, 8, b"v" * 16)
    assert now.is_other(than=was) == was.is_other(than=now) == other


def test_what_is_not_known_of_a_file_now_stays_as_it_was_known() -> None:
    was = VolumeFile(7, 8, b"v" * 16)
    assert VolumeFile(9, 0).completed(by=was) == VolumeFile(9, 8, b"v" * 16)
    assert NOT_KNOWN.completed(by=was) == was
    assert was.completed(by=NOT_KNOWN) == was


def test_all_copies_share_one_digest_and_differ_in_two_bytes_only() -> None:
    copies = [superblock.encode(example(), copy) for copy in range(4)]
    assert len({raw[:32] for raw in copies}) == 1
    assert len({raw[40:] for raw in copies}) == 1


def test_any_flipped_bit_is_noticed_except_in_the_copy_index() -> None:
    raw = superblock.encode(example(), 0)
    for position in range(0, len(raw), 7):
        broken = bytearray(raw)
        broken[position] ^= 1 << position % 8
        found = superblock.decode(bytes(broken))
        assert (found is not None) == (position in (32, 33)), position


@pytest.mark.parametrize("size", [0, 4096, 8191, 8193])
def test_a_copy_of_another_size_is_refused(size: int) -> None:
    assert superblock.decode((superblock.encode(example(), 0) * 2)[:size]) is None


def test_a_zeroed_sector_is_no_superblock() -> None:
    assert superblock.decode(bytes(8192)) is None


@pytest.mark.parametrize(
    "field",
    ["reserved_b", "reserved_c", "reserved_d", "reserved_e", "told", "lives", "members"]
    + ["members_old", "view_headers"],
)
def test_set_bytes_in_padding_are_refused_even_under_a_right_digest(field: str) -> None:
    raw = bytearray(superblock.encode(example(), 0))
    end = offset_of(SUPERBLOCK, field) + SUPERBLOCK[field].itemsize
    raw[end - 1] = 1
    raw[:32] = blake2b_256(bytes(raw[40:]))
    assert superblock.decode(bytes(raw)) is None


def sealed(raw: bytearray) -> bytes:
    return blake2b_256(bytes(raw[40:])) + bytes(raw[32:])


@pytest.mark.parametrize(
    ("at", "newer"),
    [
        (offset_of(SUPERBLOCK, "version"), True),
        (offset_of(SUPERBLOCK, "reserved_b"), True),
        (offset_of(SUPERBLOCK, "reserved_d"), True),
        (offset_of(SUPERBLOCK, "reserved_e"), True),
        (offset_of(SUPERBLOCK, "view_headers") - 1, True),
        (offset_of(SUPERBLOCK, "magic"), False),  # nothing of ours
        (offset_of(SUPERBLOCK, "file"), False),  # known here
    ],
)
def test_a_copy_of_a_later_version_is_told_from_a_damaged_one(at: int, newer: bool) -> None:
    raw = bytearray(superblock.encode(example(), 0))
    assert not superblock.is_newer(bytes(raw))
    raw[at] ^= 0x40
    assert not superblock.is_newer(bytes(raw)), "its digest is wrong"
    assert superblock.is_newer(sealed(raw)) == newer
    assert not superblock.is_newer(sealed(raw)[:-1])
    assert not superblock.is_newer(bytes(len(raw)))


def test_a_checkpoint_state_travels_alone() -> None:
    state = example().checkpoint
    raw = superblock.encode_checkpoint_state(state)
    decoded = superblock.decode_checkpoint_state(raw)
    assert decoded is not None
    assert decoded.header.raw == state.header.raw
    assert (decoded.manifest_size, decoded.log_seq) == (70_000, 4_321)
    assert superblock.decode_checkpoint_state(raw[:-1] + b"\x01") is None
    assert superblock.decode_checkpoint_state(raw[:-1]) is None
