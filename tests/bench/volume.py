"""A durable write of 4 KiB through a volume, beside a bare loop of the same system calls, by turns:
on a file, and on a raw device.

Both on one core and before all others, where this user may, as a replica has it with a core of its
own and `realtime_priority`: else what else runs on the machine is measured, which makes each of a
write's hand-overs wait now and then for longer than the disk takes.
"""

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import uvloop

from appliance.base.limits import MIB
from appliance.drivers.nvme.overhead import (
    ROUNDS,
    WRITES,
    measure_overhead,
    scratch_volume,
)
from tests.loop_device import have_loop_devices, loop_device

RATIO_MAX = 1.2
DEVICE_SIZE = 64 * MIB
SECTOR_SIZE = 4096  # of the device

PRIORITY = 10  # as an operator would give it, of 1 to 50

Row = dict[str, Any]


@contextlib.contextmanager
def before_all_others() -> Iterator[bool]:
    """This process' main thread, and whatever threads it begins; whether it may."""
    cores = os.sched_getaffinity(0)
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(PRIORITY))
    except PermissionError:
        yield False
        return
    try:
        os.sched_setaffinity(0, {max(cores)})
        yield True
    finally:
        os.sched_setaffinity(0, cores)
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


def measure(folder: Path, quick: bool, say: Callable[[str], None]) -> list[Row]:
    """A row for the file, and one for the device where there are loop devices."""
    rows = [_measure_on("a file", folder, None, quick, say)]
    if not have_loop_devices():
        say("no loop devices here: a volume on a device is not measured")
        return rows
    with loop_device(folder / "disk", DEVICE_SIZE, sector_size=SECTOR_SIZE) as device:
        rows.append(_measure_on("a device", folder, device, quick, say))
    return rows


def _measure_on(
    what: str, folder: Path, device: Path | None, quick: bool, say: Callable[[str], None]
) -> Row:
    rounds, writes = (2, 20) if quick else (ROUNDS, WRITES)
    with scratch_volume(folder, device) as made, before_all_others() as is_alone:
        found = uvloop.run(measure_overhead(made, rounds=rounds, writes=writes))
    ratio = round(found.all.ratio, 2)
    row = {
        "kind": "volume",
        "what": f"p99 of a durable 4 KiB write through the volume on {what}, beside a bare loop of "
        "its calls",
        "value": ratio,
        "unit": "times",
        "held": ratio <= RATIO_MAX,
        "bar": f"at most {RATIO_MAX}",
        "realtime": is_alone,
        **found.plain(),
    }
    each = ", ".join(f"{round_.ratio:.2f}" for round_ in found.rounds)
    say(
        f"{row['what']}: {ratio} ({row['bar']}); p50 {found.all.volume_p50_us:.0f} beside "
        f"{found.all.bare_p50_us:.0f} µs, p99 {found.all.volume_p99_us:.0f} beside "
        f"{found.all.bare_p99_us:.0f} µs by {found.method}"
        f"{'' if is_alone else ', beside whatever else runs'}; rounds: {each}"
    )
    return row
