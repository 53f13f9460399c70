"""A failing world with as little wrong in it as possible: which of its faults does a failure need?

Each class of fault is switched off in turn, sizes are made small, the horizon is drawn in; what
still makes the same checker fail is kept.
"""

from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from typing import Any

from appliance.simulation.options import Options
from appliance.simulation.world import Outcome

ROUNDS_MAX = 3  # over all steps; what one step allows may allow another
NEUTRAL = {field.name: field.default for field in fields(Options)}

# What goes together: off as a whole, or not.
CLASSES: tuple[tuple[str, ...], ...] = (
    ("overload",),
    ("reformat",),
    ("standby_count",),
    ("wire_damage",),
    ("write_error",),
    ("disk_full_ticks_mean",),
    ("clock_liar",),
    ("clock_step_ticks_mean",),
    ("clock_offset_us_max", "clock_drift_ppm_max"),
    ("write_misdirection",),
    ("write_loss",),
    ("write_corruption",),
    ("read_corruption",),
    ("read_error",),
    ("slot_faults_spread",),
    ("slow_replica",),
    ("pause_ticks_mean", "paused_ticks_mean"),
    ("power_cuts",),
    ("crash_in_write",),
    ("crash_after_disk_fault",),
    ("crash_ticks_mean", "stable_ticks"),
    ("partition", "partition_one_way"),
    ("member_changes",),
    ("replay",),
    ("drop_command",),
    ("clog",),
    ("capacity",),
    ("duplicate",),
    ("loss",),
    ("delay_us_min", "delay_us_mean"),
    ("read_us_min", "read_us_mean"),
    ("write_us_min", "write_us_mean"),
    ("edge_crash_ticks_mean",),
    ("session_kill",),
    ("device_retry",),
    ("chat",),
    ("view_first",),
)
SMALL: tuple[tuple[str, int], ...] = (
    ("sessions_per_edge", 1),
    ("edge_count", 1),
    ("room_count", 1),
    ("devices_per_room", 1),
    ("batch_max", 1),
)


def steps(options: Options) -> Iterator[dict[str, Any]]:
    """Changes to try, one at a time; only those that change something."""
    for names in CLASSES:
        change = {name: NEUTRAL[name] for name in names if getattr(options, name) != NEUTRAL[name]}
        if change:
            yield change
    for name, value in SMALL:
        if getattr(options, name) > value:
            yield {name: value}


def minimise(
    options: Options, run: Callable[[Options], Outcome], tell: Callable[[str], None]
) -> Options:
    """The smallest options found under which the same checker fails; `run` tries some."""
    first = run(options)
    assert first.failure, "only what fails can be made smaller"
    best, ticks = _nearer(options, first), first.ticks
    for _ in range(ROUNDS_MAX):
        before = best
        for change in steps(best):
            outcome = run(replace(best, **change))
            if outcome.failure and outcome.checker == first.checker:
                best = _nearer(replace(best, **change), outcome)
                ticks = outcome.ticks
                tell(f"not needed: {', '.join(change)} (tick {ticks})")
        if best == before:
            break
    return best


def _nearer(options: Options, outcome: Outcome) -> Options:
    """No more ticks than the failure needed."""
    return replace(options, safety_ticks=min(options.safety_ticks, outcome.ticks + 1))


def differences(options: Options) -> dict[str, Any]:
    """What is not as in a world without faults."""
    return {
        name: getattr(options, name) for name in NEUTRAL if getattr(options, name) != NEUTRAL[name]
    }
