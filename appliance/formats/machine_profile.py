"""What is expected of a machine: one TOML file for each model, or kind of machine, data only.

`firmware-config/README.md` describes the tables. A key that is left out is not compared.
"""

from dataclasses import dataclass
from typing import Any

from appliance.base.errors import ConfigurationError
from appliance.formats.configuration import (
    FilePath,
    Key,
    check_table,
    one_of,
    read_toml,
    switch,
    text,
    whole,
)

KINDS = ("generic-x86-64", "virtual-machine", "arm64")
NONE = None  # default of what is not compared
_SIZE_MAX = 200  # characters of a text


def _texts() -> Key:
    """A list of texts."""
    one = text(_SIZE_MAX)

    def parse(value: Any) -> list[str]:
        if type(value) is not list:
            raise TypeError
        return [one.parse(item) for item in value]

    return Key("a list of texts", parse, [])


def _texts_by_name() -> Key:
    """A table of texts and whole numbers; all are compared as texts."""

    def parse(value: Any) -> dict[str, str]:
        if type(value) is not dict:
            raise TypeError
        for item in value.values():
            if type(item) not in (str, int):
                raise TypeError
        return {name: str(item) for name, item in value.items()}

    return Key("a table of texts and whole numbers", parse, {})


_COUNT_MAX = 1 << 20
TABLES: dict[str, dict[str, Key]] = {
    "machine": {
        "name": text(_SIZE_MAX),
        "kind": one_of(KINDS, ""),
        "vendor": text(_SIZE_MAX, ""),
        "product": text(_SIZE_MAX, ""),
    },
    "bios": {
        "version_min": text(_SIZE_MAX, NONE),
        "boot": one_of(("uefi", "bios"), NONE),
        "settings": _texts_by_name(),
    },
    "bmc": {"version_min": text(_SIZE_MAX, NONE)},
    "cpu": {
        "clock_source": text(_SIZE_MAX, NONE),
        "governor": text(_SIZE_MAX, NONE),
        "numa_nodes_max": whole(1, 64, NONE),
        "mitigated": switch(NONE),
        "interrupts_on_isolated_max": whole(0, _COUNT_MAX, NONE),
    },
    "clock": {"synchronized": switch(NONE)},
    "memory": {
        "huge_pages_2m_min": whole(0, _COUNT_MAX, NONE),
        "transparent_huge_pages": one_of(("always", "madvise", "never"), NONE),
    },
    "disk": {
        "scheduler": text(_SIZE_MAX, NONE),
        "power_loss_protection": switch(NONE),
        "latency_tolerance_us_max": whole(0, _COUNT_MAX, NONE),
    },
    "nvme": {
        "model": text(_SIZE_MAX),
        "firmware_min": text(_SIZE_MAX, NONE),
        "sector_size": whole(512, 4096, NONE),
        "power_loss_protection": switch(NONE),
    },
    "nic": {
        "driver": text(_SIZE_MAX),
        "firmware_min": text(_SIZE_MAX, NONE),
        "rx_ring_min": whole(1, _COUNT_MAX, NONE),
        "tx_ring_min": whole(1, _COUNT_MAX, NONE),
    },
    "kernel": {"command_line": _texts(), "sysctl": _texts_by_name()},
}
LISTS = ("nvme", "nic")  # [[tables]], one for each model or driver


@dataclass(frozen=True, slots=True)
class Profile:
    """`tables` by name with the keys of `TABLES`, checked; those of `LISTS` are lists of them."""

    file: str
    tables: dict[str, Any]

    @property
    def name(self) -> str:
        return str(self.tables["machine"]["name"])


def load_profile(path: FilePath) -> Profile:
    """The profile in file `path`; ConfigurationError names file, key and what is allowed."""
    raw = read_toml(path)
    unknown = [name for name in raw if name not in TABLES]
    if unknown:
        raise ConfigurationError(f"{path}: {unknown[0]} is unknown; allowed: {', '.join(TABLES)}")
    tables: dict[str, Any] = {}
    for name, keys in TABLES.items():
        if name in LISTS:
            tables[name] = [check_table(path, one, keys, f"{name}.") for one in raw.get(name, [])]
        else:
            tables[name] = check_table(path, raw.get(name, {}), keys, f"{name}.")
    return Profile(str(path), tables)
