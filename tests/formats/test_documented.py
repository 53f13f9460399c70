"""docs/formats.md has every layout, with each field at its offset."""

import importlib
import re
from pathlib import Path

import numpy as np
import pytest

from appliance.base.layout import offset_of

DOCUMENT = Path(__file__).parents[2] / "docs" / "formats.md"
MODULES = (
    "record",
    "envelope",
    "command",
    "remote",
    "session",
    "superblock",
    "lives",
    "volume_file",
    "segment",
    "checkpoint",
    "snapshot",
    "event",
    "membership",
    "sharing",
    "curves",
)
MARK = re.compile(r"<!-- (\w+)\.(\w+) -->\n((?:\|.*\n)+)")
ROW = re.compile(r"\| (\d+) \| (\d+) \| `(\w+)` \| \S.* \|")


def documented() -> dict[tuple[str, str], list[tuple[str, int, int]]]:
    """(module, name) -> fields as (name, offset, size)."""
    found = {}
    for module, name, table in MARK.findall(DOCUMENT.read_text()):
        rows = [ROW.fullmatch(line) for line in table.splitlines()[2:]]
        assert all(rows), table
        found[module, name] = [(row[3], int(row[1]), int(row[2])) for row in rows if row]
    return found


def layouts() -> dict[tuple[str, str], np.dtype]:
    """Every structured dtype that a module of layouts defines itself."""
    found = {}
    for module in MODULES:
        names = vars(importlib.import_module(f"appliance.formats.{module}"))
        for name, value in names.items():
            if isinstance(value, np.dtype) and value.names:
                found[module, name] = value
    return found


def of_another(module: str, dtype: np.dtype) -> bool:
    """Imported there from the module that defines it."""
    return any(value is dtype and other != module for (other, _), value in layouts().items())


def test_every_layout_is_documented() -> None:
    defined = {key for key, dtype in layouts().items() if not of_another(key[0], dtype)}
    defined.add(("record", "RECORD"))
    assert set(documented()) == defined


@pytest.mark.parametrize("key", sorted(documented()), ids=".".join)
def test_each_field_is_documented_at_its_offset(key: tuple[str, str]) -> None:
    dtype = layouts()[key]
    assert documented()[key] == [
        (name, offset_of(dtype, name), dtype[name].itemsize) for name in dtype.names
    ]
