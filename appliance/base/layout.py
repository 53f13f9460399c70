"""A numpy dtype is the layout; the form for one row is derived from it, never retyped."""

import math
import struct

import numpy as np

_CODES = {"<u8": "Q", "<u4": "I", "<u2": "H", "|u1": "B"}


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
