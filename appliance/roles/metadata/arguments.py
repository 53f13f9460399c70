"""What a request must hold: TextRefused names what is missing."""

from typing import Any

from appliance.base.errors import TextRefused

Request = dict[str, Any]


def text_of(request: Request, name: str) -> str:
    value = request.get(name)
    if not isinstance(value, str):
        raise TextRefused(f"`{name}` is missing, or no text")
    return value


def whole_of(request: Request, name: str) -> int:
    value = request.get(name)
    if type(value) is not int:
        raise TextRefused(f"`{name}` is missing, or no whole number")
    return value


def texts_of(request: Request, name: str, count_max: int) -> list[str]:
    """Empty where it is missing."""
    value = request.get(name, [])
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise TextRefused(f"`{name}` is a list of texts")
    if len(value) > count_max:
        raise TextRefused(f"`{name}` has {len(value)} entries; at most {count_max}")
    return value
