"""The shape of what handles a frame."""

from collections.abc import Callable
from typing import Any

from appliance.cores.edge.session import Session

# A frame of that session: True when it is done, False when it is to be handled again later.
# Raises InputError.
Handler = Callable[[Session, Any], bool]
