"""The health of disks: what their controllers count, and what of it is trouble."""

from collections.abc import Iterator
from dataclasses import dataclass

from appliance.formats.nvme_health import WARNINGS, Health
from appliance.formats.status.replica import VolumeStatus

WORN_PERCENT = 90  # of its expected life: order another one


@dataclass(frozen=True, slots=True)
class Disk:
    """What a replica says of its volume and the disks under it. `untold`: whose health is not
    known, and why."""

    alarm: str = ""  # the volume's own
    device: str = ""  # a raw one
    health: tuple[tuple[str, Health], ...] = ()
    untold: tuple[tuple[str, str], ...] = ()
    scrubbed: int = 0  # how often the replica has read all that it holds, since its start
    scrubs: bool = False  # it does so now, at once


def disk_of(volume: VolumeStatus, scrub: tuple[int, int]) -> Disk:
    rounds, hurried = scrub
    return Disk(
        scrubbed=rounds,
        scrubs=rounds < hurried,
        alarm=volume.alarm or "",
        device=volume.device,
        health=tuple(sorted(volume.health.disks.items())),
        untold=tuple(sorted(volume.health.untold.items())),
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
