"""What the toy role says of itself."""

from typing import ClassVar

from appliance.formats.status.status import Status


class ToyStatus(Status, frozen=True, kw_only=True):
    kind: ClassVar = "toy"

    plays: bool
