"""A node's status, as far as the choice of duties and the directory need it.

What is missing or of the wrong type counts as nothing: a document is never refused for it.
"""

from dataclasses import dataclass
from typing import Any

from appliance.base.limits import FARM_ENDPOINTS_MAX

PUBLISH_OFF, PUBLISH_ON, PUBLISH_AUTO = "off", "on", "auto"
_HOUR_MS = 3_600_000
_DAY_HOURS = 24
_LAG_STEP_MS = 50
_TEXT_SIZE_MAX = 1024  # characters of an identity or an address


@dataclass(slots=True, frozen=True)
class Endpoint:
    """What a node serves. `shard`: its number, or -1; `weight`: free share of it, 1 to 100;
    `ships`: this node could ship the shard, unless it says that it does not."""

    identity: str
    address: str
    shard: int
    weight: int
    blacklisted: bool
    ships: bool


@dataclass(slots=True, frozen=True)
class Status:
    id: int
    date: int
    publish: str
    uptime_hours: int
    free_eighths: int
    lag_steps: int
    endpoints: tuple[Endpoint, ...]


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _number(value: Any) -> int:
    valid = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 62
    return value if valid else 0


def _text(value: Any) -> str:
    return value if isinstance(value, str) and len(value) <= _TEXT_SIZE_MAX else ""


def status_of(poster: int, date: int, document: dict[str, Any]) -> Status:
    """The status in a document that was taken."""
    router, meta = _object(document.get("router")), _object(document.get("meta"))
    publish = meta.get("publishConfig")
    rows = document.get("destinations")
    endpoints = [_endpoint(_object(row)) for row in (rows if isinstance(rows, list) else [])]
    return Status(
        id=poster,
        date=date,
        publish=publish if publish in (PUBLISH_OFF, PUBLISH_ON, PUBLISH_AUTO) else PUBLISH_OFF,
        uptime_hours=min(_number(router.get("uptime")) // _HOUR_MS, _DAY_HOURS),
        free_eighths=_free(router, "bandwidth", 8),
        lag_steps=_number(router.get("jobLag")) // _LAG_STEP_MS,
        endpoints=tuple(e for e in endpoints[:FARM_ENDPOINTS_MAX] if e.identity),
    )


def _free(row: dict[str, Any], what: str, whole: int) -> int:
    """The free part of what is configured, in steps of `whole`."""
    configured = _number(row.get(f"{what}Configured"))
    current = min(_number(row.get(f"{what}Current")), configured)
    return whole * (configured - current) // configured if configured else 0


def _endpoint(row: dict[str, Any]) -> Endpoint:
    shard = row.get("shard")
    numbered = isinstance(shard, int) and not isinstance(shard, bool) and shard >= 0
    return Endpoint(
        identity=_text(row.get("destination")),
        address=_text(row.get("address")),
        shard=shard if numbered and isinstance(shard, int) else -1,
        weight=max(1, _free(row, "connections", 100)),
        blacklisted=bool(row.get("blacklist")),
        ships=row.get("ships") is not False,
    )
