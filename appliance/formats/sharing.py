"""Rooms that sites share: who takes part, as a room's policy says it, and what came from elsewhere.

    SHARING    in a room_policy record behind its bits: the times of repair, how many sites
    SITE       follows for each site: its right, its name, the key that signs what it says
    FEDERATED  begins the body of a record that another site made; the text follows

Every site of a room sets an equal policy of its own; this site is in it like the others. A site is
called by a number that follows from its name, so that a record and a row have room for it; two
sites whose numbers are equal cannot share one room. docs/formats.md has the offsets.
"""

from collections.abc import Iterable
from hashlib import blake2b
from typing import NamedTuple

import numpy as np

from appliance.base.layout import struct_of
from appliance.base.limits import (
    BODY_SIZE_MAX,
    CAUSAL_LAMPORT_MAX,
    FEDERATED_PARTS_MAX,
    SHARING_SITES_MAX,
    SITE_NAME_SIZE_MAX,
)

# ATTACHED: it sends, and its messages bear ids of another implementation, which it signs
RIGHT_READ, RIGHT_SEND, RIGHT_ATTACHED = 1, 2, 3
_RIGHTS = (RIGHT_READ, RIGHT_SEND, RIGHT_ATTACHED)
_SENDS_BIT = 1  # of a site's number, which is even

SHARING = np.dtype(
    [
        ("repair_ms_min", "<u4"),  # T_min
        ("repair_ms_max", "<u4"),  # T_max
        ("groups", "<u2"),  # of whom only one answers a repair request
        ("site_count", "<u2"),
        ("reserved", "V4"),
    ]
)
SITE = np.dtype(
    [
        ("right", "u1"),  # RIGHT_*
        ("name_len", "u1"),
        ("name", f"V{SITE_NAME_SIZE_MAX}"),  # ASCII, zero behind name_len
        ("public_key", "V32"),  # Ed25519
    ]
)
FEDERATED = np.dtype(
    [
        ("site", "<u4"),  # its number
        ("part", "<u2"),  # from 0
        ("parts", "<u2"),
        ("lamport", "<u8"),
        ("seq", "<u8"),  # in the room of the origin
        ("time_us", "<u8"),  # of the record there
        ("message_id", "V32"),  # of Scalable Data Sync, 32 bytes of which it is the hexadecimal
    ]
)
FEDERATED_PREFIX_SIZE = 64
assert (SHARING.itemsize, SITE.itemsize, FEDERATED.itemsize) == (16, 64, FEDERATED_PREFIX_SIZE)
FEDERATED_TEXT_SIZE_MAX = BODY_SIZE_MAX - FEDERATED_PREFIX_SIZE
_SHARING, _SITE, _FEDERATED = struct_of(SHARING), struct_of(SITE), struct_of(FEDERATED)

# The device of every record that a carrying node appends: this, then the number of its claim.
_CLIENT_PREFIX = b"tc-carry"


class SharedSite(NamedTuple):
    """One site of a room."""

    name: str
    public_key: bytes
    right: int = RIGHT_SEND

    @property
    def number(self) -> int:
        return site_number_of(self.name)


class Sharing(NamedTuple):
    """Who shares a room, by name; times in ms."""

    sites: tuple[SharedSite, ...]
    repair_ms_min: int = 30_000
    repair_ms_max: int = 120_000
    groups: int = 1


class Federated(NamedTuple):
    """What a federated record says before its text; fields as in FEDERATED."""

    site: int
    part: int
    parts: int
    lamport: int
    seq: int
    time_us: int
    message_id: bytes


def site_name_valid(name: str) -> bool:
    """1 to 30 letters a-z, digits and hyphens: it stands behind an @."""
    letters = all(c.isascii() and (c.islower() or c.isdigit() or c == "-") for c in name)
    return letters and 1 <= len(name) <= SITE_NAME_SIZE_MAX


def site_number_of(name: str) -> int:
    """An even number of 32 bits, never 0."""
    digest = blake2b(name.encode(), digest_size=4, person=b"tc-site").digest()
    return int.from_bytes(digest, "little") & ~_SENDS_BIT or 2


def site_number_text(number: int) -> str:
    """How people are shown a number: 8 hexadecimal digits."""
    return f"{number:08x}"


def encode_sharing(sharing: Sharing) -> bytes:
    """What follows the bits in a policy's body. Sites stand in the order of their names."""
    sites = sorted(sharing.sites)
    assert 2 <= len(sites) <= SHARING_SITES_MAX
    head = _SHARING.pack(
        sharing.repair_ms_min, sharing.repair_ms_max, sharing.groups, len(sites), b""
    )
    rows = (
        _SITE.pack(site.right, len(site.name), site.name.encode(), site.public_key)
        for site in sites
    )
    return head + b"".join(rows)


def decode_sharing(raw: bytes) -> Sharing | None:
    """None for bytes that `encode_sharing` does not make."""
    if len(raw) < SHARING.itemsize:
        return None
    repair_ms_min, repair_ms_max, groups, count, _ = _SHARING.unpack_from(raw)
    if not 2 <= count <= SHARING_SITES_MAX or len(raw) != SHARING.itemsize + count * SITE.itemsize:
        return None
    if not 0 < repair_ms_min < repair_ms_max or not groups:
        return None
    sites = []
    for right, size, name, public_key in _SITE.iter_unpack(raw[SHARING.itemsize :]):
        text = name[:size].decode("ascii", "replace")
        if right not in _RIGHTS or not site_name_valid(text):
            return None
        sites.append(SharedSite(text, public_key, right))
    if len({site.number for site in sites}) != count:
        return None
    sharing = Sharing(tuple(sites), repair_ms_min, repair_ms_max, groups)
    return sharing if encode_sharing(sharing) == raw else None


def site_words(sites: Iterable[SharedSite]) -> tuple[int, ...]:
    """What a room's row keeps of its sites: numbers, with the lowest bit set for who may send."""
    return tuple(site.number | (site.right != RIGHT_READ) * _SENDS_BIT for site in sites)


def may_send(words: Iterable[int], number: int) -> bool:
    """Whether the site with this number may send, by `site_words`."""
    return number | _SENDS_BIT in words and not number & _SENDS_BIT


def encode_federated(prefix: Federated, text: bytes) -> bytes:
    """Body of a federated record."""
    assert len(text) <= FEDERATED_TEXT_SIZE_MAX
    return _FEDERATED.pack(*prefix) + text


def decode_federated(body: bytes | memoryview) -> Federated | None:
    """What the body of a federated record says before its text; None if it is none."""
    if len(body) < FEDERATED_PREFIX_SIZE:
        return None
    prefix = Federated(*_FEDERATED.unpack_from(body))
    known = prefix.part < prefix.parts <= FEDERATED_PARTS_MAX and prefix.seq > 0
    return prefix if known and prefix.lamport < CAUSAL_LAMPORT_MAX else None


def carrier_client_id(generation: int) -> bytes:
    """The device of what a carrying node appends under its claim: 16 bytes."""
    return _CLIENT_PREFIX + generation.to_bytes(8, "little")
