"""Room names and the ids that follow from them: creating a room twice names the same room."""

from hashlib import blake2b

from appliance.base.limits import ROOM_NAME_SIZE_MAX


def room_id_of(name: str) -> bytes:
    """16 bytes, as they stand in records (a little-endian u128)."""
    return blake2b(name.encode(), person=b"tc-room").digest()[:16]


def room_name_valid(name: str) -> bool:
    """1 to 128 bytes of printable UTF-8 that neither start nor end with a space."""
    return (
        name.isprintable()
        and name == name.strip()
        and 1 <= len(name.encode(errors="surrogatepass")) <= ROOM_NAME_SIZE_MAX
    )


def room_name_fault(name: str) -> str:
    """Why it is no name of a room; empty: it is one."""
    if room_name_valid(name):
        return ""
    return (
        f"the name is {name[:40]!r}; allowed: 1 to {ROOM_NAME_SIZE_MAX} bytes of printable text, "
        "no space at either end"
    )


def room_creator_id(room_id: bytes, author_id: int) -> bytes:
    """client_id of a record that creates a room: it never disturbs a device's own numbering."""
    assert len(room_id) == 16
    return blake2b(room_id + author_id.to_bytes(8, "little"), digest_size=16).digest()
