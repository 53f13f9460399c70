"""The health page of NVMe disks, laid out here by hand after the specification."""

import pytest

from appliance.base.errors import FormatError
from appliance.formats.nvme_health import HEALTH_SIZE, WARNINGS, Health, decode_health

# Bytes at their offsets: of a disk that has worked for three years.
WORN = {
    1: "3701",  # 311 K
    3: "64",  # 100 %
    4: "0a",  # 10 %
    5: "0c",  # 12 %
    32: "404b4c",  # 5,000,000 thousands of 512 bytes
    48: "00093d00",  # 4,000,000
    80: "ffffffffffffffff",  # commands: not ours
    112: "31",  # power cycles: not ours
    128: "b966",  # 26,297 h
    144: "0700",
    160: "0000000000000001",  # 2 ** 56: counters are wide
    176: "ff",  # entries of the error log: not ours
}


def page(changes: dict[int, str] | None = None) -> bytes:
    laid = bytearray(HEALTH_SIZE)
    for offset, text in {**WORN, **(changes or {})}.items():
        raw = bytes.fromhex(text)
        laid[offset : offset + len(raw)] = raw
    return bytes(laid)


def test_each_figure_is_read_from_its_place() -> None:
    assert decode_health(page()) == Health(
        warnings=(),
        temperature_c=38,
        spare_percent=100,
        spare_percent_min=10,
        used_percent=12,
        read_bytes=2_560_000_000_000,
        written_bytes=2_048_000_000_000,
        power_on_hours=26_297,
        unsafe_shutdowns=7,
        media_errors=1 << 56,
    )


def test_each_warning_has_its_bit_and_bits_of_later_versions_are_left_alone() -> None:
    names = [name for name, _ in WARNINGS]
    for bit, name in enumerate(names):
        assert decode_health(page({0: f"{1 << bit:02x}"})).warnings == (name,)
    assert decode_health(page({0: "ff"})).warnings == tuple(names)
    assert decode_health(page({0: "c0"})).warnings == ()


@pytest.mark.parametrize("raw", [b"", page()[:-1], page() + b"\0", bytes(HEALTH_SIZE)])
def test_what_is_no_health_page_is_refused(raw: bytes) -> None:
    with pytest.raises(FormatError, match="a health page"):
        decode_health(raw)
