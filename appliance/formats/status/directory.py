"""The signed directory of a farm, as a process of a node holds it."""

from appliance.formats.status.part import Part


class HeldDirectory(Part, frozen=True, kw_only=True):
    """`expired_ms` is 0 while it is valid, or while there is none."""

    version: int = 0
    publisher: int = 0
    expires: int = 0  # milliseconds since the epoch
    expired_ms: int = 0
    refused: str = ""  # why a newer one is not taken
