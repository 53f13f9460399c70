"""JSON that another process, another machine or an operator wrote."""

import json
from collections.abc import Callable
from typing import Any

from appliance.base.limits import JSON_DEPTH_MAX


def parse_json(raw: str | bytes | bytearray, **hooks: Callable[..., Any]) -> Any:
    """The value that a text holds; `hooks` are those of `json.loads`. ValueError, and no other
    error, says that it holds none: no JSON, no UTF-8, a number of too many digits, or values nested
    deeper than JSON_DEPTH_MAX, which whoever walks through them could not bear.

    As `json.loads` does it takes NaN, Infinity and halves of characters (`\\ud800`), which are no
    text that could be sent on or stored.
    """
    text = raw if isinstance(raw, str) else raw.decode()
    try:
        found = json.loads(text, **hooks)  # type: ignore[arg-type]
    except RecursionError:  # no ValueError, and where it begins depends on who calls
        raise _too_deep() from None
    if text.count("[") + text.count("{") > JSON_DEPTH_MAX and _is_too_deep(found):
        raise _too_deep()
    return found


def _is_too_deep(found: Any) -> bool:
    layer = [found]
    for _ in range(JSON_DEPTH_MAX + 1):
        nests = [value for value in layer if isinstance(value, dict | list)]
        if not nests:
            return False
        layer = []
        for nest in nests:
            layer += nest.values() if isinstance(nest, dict) else nest
    return True


def _too_deep() -> ValueError:
    return ValueError(f"nested more than {JSON_DEPTH_MAX} deep")
