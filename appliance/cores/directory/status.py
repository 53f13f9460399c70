"""A node's status, as far as the choice of duties and the directory need it.

What is missing or of the wrong type counts as nothing: a document is never refused for it.
"""

from dataclasses import dataclass
from typing import Any

from appliance.base.limits import FARM_ENDPOINTS_MAX, FARM_ID_MAX, FARM_SHARDS_MAX, MEMBERS_MAX

PUBLISH_OFF, PUBLISH_ON, PUBLISH_AUTO = "off", "on", "auto"
_HOUR_MS = 3_600_000
_DAY_HOURS = 24
_LAG_STEP_MS = 50
_TEXT_SIZE_MAX = 1024  # characters of an identity or an address


@dataclass(slots=True, frozen=True)
class Endpoint:
    """What a node serves. `shard`: its number, or -1; `weight`: free share of it, 1 to 100;
    `ships`: this node could ship the shard, unless it says that it does not; `synced`: per cent of
    the shard's state that it has, all unless it says less."""

    identity: str
    address: str
    shard: int
    weight: int
    blacklisted: bool
    ships: bool
    synced: int = 100


@dataclass(slots=True, frozen=True)
class Group:
    """Who belongs to a shard since op `op` of its log, by the numbers of nodes, as one of its
    replicas has it."""

    shard: int
    op: int
    voters: tuple[int, ...]
    standbys: tuple[int, ...]

    def row(self) -> dict[str, Any]:
        return {
            "shard": self.shard,
            "op": self.op,
            "voters": list(self.voters),
            "standbys": list(self.standbys),
        }


@dataclass(slots=True, frozen=True)
class Status:
    id: int
    date: int
    publish: str
    uptime_hours: int
    free_eighths: int
    lag_steps: int
    endpoints: tuple[Endpoint, ...]
    groups: tuple[Group, ...] = ()  # of the shards of which this node has replicas
    address: str = ""  # where clients of this node connect, whatever it serves

    @property
    def addresses(self) -> list[str]:
        """All that it names."""
        return sorted({self.address, *(e.address for e in self.endpoints)} - {""})


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
    rows = document.get("groups")
    groups = [_group(_object(row)) for row in (rows if isinstance(rows, list) else [])]
    return Status(
        id=poster,
        date=date,
        publish=publish if publish in (PUBLISH_OFF, PUBLISH_ON, PUBLISH_AUTO) else PUBLISH_OFF,
        uptime_hours=min(_number(router.get("uptime")) // _HOUR_MS, _DAY_HOURS),
        free_eighths=_free(router, "bandwidth", 8),
        lag_steps=_number(router.get("jobLag")) // _LAG_STEP_MS,
        endpoints=tuple(e for e in endpoints[:FARM_ENDPOINTS_MAX] if e.identity),
        groups=tuple(group for group in groups[:FARM_SHARDS_MAX] if group is not None),
        address=_text(document.get("address")),
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
        synced=min(100, _number(row["synced"])) if "synced" in row else 100,
    )


def _group(row: dict[str, Any]) -> Group | None:
    shard, op = row.get("shard"), row.get("op")
    if type(shard) is not int or not 0 <= shard < FARM_SHARDS_MAX or type(op) is not int:
        return None
    voters, standbys = _nodes(row.get("voters")), _nodes(row.get("standbys"))
    if not voters or standbys is None or set(voters) & set(standbys):
        return None
    return Group(shard, op, voters, standbys) if 0 <= op < 1 << 62 else None


def _nodes(value: Any) -> tuple[int, ...] | None:
    """Different numbers of nodes; None: they are none."""
    if not isinstance(value, list) or not len(value) == len({*map(str, value)}) <= MEMBERS_MAX:
        return None
    valid = all(type(node) is int and 0 < node <= FARM_ID_MAX for node in value)
    return tuple(value) if valid else None
