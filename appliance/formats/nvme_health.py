"""What an NVMe controller says of its health: log page 02h of the NVM Express base specification,
"SMART / Health Information", 512 bytes, integers little-endian.

    0     warnings           u8, a bit for each row of WARNINGS
    1     temperature        u16, kelvin
    3     spare              u8, per cent of the blocks in reserve that are left
    4     spare threshold    u8, per cent below which the controller warns
    5     used               u8, per cent of its expected life; may pass 100, ends at 255
    32    read, written      u128 each, thousands of 512 bytes
    128   power on           u128, hours
    144   unsafe shutdowns   u128, power that went without a word
    160   media errors       u128, times that data could not be given back whole
"""

import struct
from dataclasses import dataclass

from appliance.base.errors import FormatError

HEALTH_SIZE = 512
# Of each bit: a name for programs, and words.
WARNINGS = (
    ("spare", "hardly any spare blocks are left"),
    ("temperature", "its temperature is out of bounds"),
    ("reliability", "media errors have made it unreliable"),
    ("read_only", "it takes no more writes"),
    ("power_loss", "what protects its cache when power goes has failed"),
    ("persistent_memory", "its persistent memory can only be read, or not be trusted"),
)
_HEAD = struct.Struct("<BHBBB")
_UNIT = 512_000  # bytes
_KELVIN = 273


@dataclass(frozen=True, slots=True)
class Health:
    """`warnings` by name. Counters grow for the controller's whole life."""

    warnings: tuple[str, ...]
    temperature_c: int
    spare_percent: int
    spare_percent_min: int
    used_percent: int
    read_bytes: int
    written_bytes: int
    power_on_hours: int
    unsafe_shutdowns: int
    media_errors: int


def decode_health(page: bytes) -> Health:
    """FormatError for what is no such page, as one that nothing was written into."""
    if len(page) != HEALTH_SIZE:
        raise FormatError(f"a health page of {len(page)} bytes, not {HEALTH_SIZE}")
    bits, kelvin, spare, spare_min, used = _HEAD.unpack_from(page)
    if not any(page):
        raise FormatError("a health page without anything in it")

    def counter(offset: int) -> int:
        return int.from_bytes(page[offset : offset + 16], "little")

    return Health(
        warnings=tuple(name for bit, (name, _) in enumerate(WARNINGS) if bits >> bit & 1),
        temperature_c=kelvin - _KELVIN,
        spare_percent=spare,
        spare_percent_min=spare_min,
        used_percent=used,
        read_bytes=counter(32) * _UNIT,
        written_bytes=counter(48) * _UNIT,
        power_on_hours=counter(128),
        unsafe_shutdowns=counter(144),
        media_errors=counter(160),
    )
