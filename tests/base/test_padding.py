"""Zero padding, held against `any`."""

import pytest

from appliance.base.padding import is_zero


@pytest.mark.parametrize("view", [bytes, memoryview])
def test_a_single_bit_anywhere_is_found(view: type) -> None:
    for size in (1, 7, 64, 3_840):
        data = bytearray(size)
        assert is_zero(view(bytes(data)))
        for at in {0, size // 2, size - 1}:
            for bit in (0, 7):
                data[at] = 1 << bit
                assert not is_zero(view(bytes(data)))
                data[at] = 0


def test_nothing_is_zero() -> None:
    assert is_zero(b"")
    assert is_zero(memoryview(b""))
