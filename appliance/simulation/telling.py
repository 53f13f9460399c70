"""A replica that tells which of its steps has moved it, for a log of everything that happened."""

from collections.abc import Callable
from typing import Any

from appliance.cores.vsr.replica import Replica
from appliance.cores.vsr.steps import STEPS, standing


class Telling(Replica):
    """Does what every replica does, by the table of steps; `tell` gets the names of those that have
    moved something.
    """

    def __init__(self, tell: Callable[[str], None], **of_any_replica: Any) -> None:
        super().__init__(**of_any_replica)
        self._tell = tell

    def take_steps(self) -> bool:
        for name, due, act in STEPS:
            if not due(self):
                continue
            before = standing(self), len(self.effects)
            ends = act(self)
            if before != (standing(self), len(self.effects)):
                self._tell(name)
            if ends:
                return True
        return False
