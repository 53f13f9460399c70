"""Figures that every process has of itself."""

from msgspec import UNSET, UnsetType

from appliance.formats.status.status import Part


class Turns(Part, frozen=True, kw_only=True):
    """How the loop of a process has turned since its start."""

    seconds_late: int = 0  # that a stall swallowed
    weather: int = 0  # what the machine refused
    ticks_late: int | UnsetType = UNSET  # of who has ticks
