"""The health of disks: what their controllers count, and what of it is trouble."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from appliance.formats.nvme_health import WARNINGS, Health

WORN_PERCENT = 90  # of its expected life: order another one


@dataclass(frozen=True, slots=True)
class Disk:
    """What a replica says of its volume and the disks under it. `untold`: whose health is not
    known, and why."""

    alarm: str = ""  # the volume's own
    device: str = ""  # a raw one
    health: tuple[tuple[str, Health], ...] = ()
    untold: tuple[tuple[str, str], ...] = ()


def parse_disk(volume: Mapping[str, Any]) -> Disk:
    """Of a replica's `volume`. TypeError, KeyError where the shape is another one."""
    raw = volume.get("health", {})
    health = {
        name: Health(**{**of, "warnings": tuple(of["warnings"])})
        for name, of in raw.get("disks", {}).items()
    }
    return Disk(
        alarm=volume["alarm"] or "",
        device=str(volume.get("device", "")),
        health=tuple(sorted(health.items())),
        untold=tuple(sorted(raw.get("untold", {}).items())),
    )


def troubles(health: Health) -> Iterator[tuple[str, str]]:
    """(severity, words) of each."""
    words = dict(WARNINGS)
    for name in health.warnings:
        yield "bad", words.get(name, name)
    if health.spare_percent < health.spare_percent_min and "spare" not in health.warnings:
        yield "bad", words["spare"]
    if health.used_percent >= WORN_PERCENT:
        yield "warn", f"{health.used_percent} % of its expected life is used"
    if health.media_errors:
        yield "warn", f"{health.media_errors:,} times it could not give data back whole"
