"""A numpy dtype is the layout; the form for one row is derived from it, never retyped."""

import math
import struct
from collections.abc import Callable
from operator import itemgetter
from typing import Protocol, TypeVar

import numpy as np

_CODES = {"<u8": "Q", "<u4": "I", "<u2": "H", "|u1": "B"}

Raw = TypeVar("Raw", bound=bytes | bytearray | memoryview)


class BytesOf(Protocol):
    """Takes a field out of bytes that begin with a row."""

    def __call__(self, raw: Raw, /) -> Raw: ...


IntOf = Callable[[bytes | bytearray | memoryview], int]


def struct_of(dtype: np.dtype) -> struct.Struct:
    """The `Struct` with the fields of `dtype`, in order; void fields become bytes.

    A field with a shape becomes as many values as it has elements. Raises KeyError on a field
    type that has no fixed little-endian form: a layout that cannot be written down.
    """
    assert dtype.names is not None
    parts = ["<"]
    for name in dtype.names:
        base, shape = dtype[name].subdtype or (dtype[name], ())
        if base.kind in "VS":
            assert shape == ()
            parts.append(f"{base.itemsize}s")
        else:
            parts.append(_CODES[base.str] * math.prod(shape))
    layout = struct.Struct("".join(parts))
    assert layout.size == dtype.itemsize
    return layout


def picked(dtype: np.dtype, *names: str) -> struct.Struct:
    """The `Struct` of the whole of `dtype` that yields the fields `names` only, in layout order."""
    assert dtype.names is not None
    assert list(names) == [name for name in dtype.names if name in names]
    parts = ["<"]
    for name in dtype.names:
        field = np.dtype([(name, dtype[name])])
        parts.append(struct_of(field).format[1:] if name in names else f"{field.itemsize}x")
    layout = struct.Struct("".join(parts))
    assert layout.size == dtype.itemsize
    return layout


def offset_of(dtype: np.dtype, name: str) -> int:
    """Byte offset of field `name`."""
    assert dtype.fields is not None
    return dtype.fields[name][1]


def bytes_of(dtype: np.dtype, name: str) -> BytesOf:
    """What takes the void field `name` out of bytes that begin with a row: a copy of bytes, a view
    of a view, as fast as a slice with numbers.
    """
    assert dtype[name].kind == "V"
    start = offset_of(dtype, name)
    return itemgetter(slice(start, start + dtype[name].itemsize))


def int_of(dtype: np.dtype, name: str) -> IntOf:
    """What reads the number `name` of a row at the start of some bytes, faster than by a slice."""
    start, read = offset_of(dtype, name), struct_of(np.dtype([(name, dtype[name])])).unpack_from

    def value(raw: bytes | bytearray | memoryview) -> int:
        number: int = read(raw, start)[0]
        return number

    return value
