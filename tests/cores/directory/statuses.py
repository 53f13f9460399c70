"""What members of a farm say of themselves, for tests of who reads it."""

from typing import Any

from appliance.formats.status.farm import (
    ActsStatus,
    FarmServer,
    FarmStatus,
    FarmView,
    SignedDirectory,
)


def view(**changes: Any) -> FarmView:
    """Of a farm that agrees on nothing yet."""
    found: dict[str, Any] = {
        "index": 60,
        "time_ms": 0,
        "publisher": 0,
        "scores": {},
        "ahead": {},
        "shippers": {},
        "excluded": [],
        "placement": {},
        "departed": [],
        "period_ms": 60_000,
        "documents": [],
    }
    return FarmView(**found | changes)


def server(id: int, match: int = 0) -> FarmServer:
    return FarmServer(id=id, endpoint=f"tcp://127.0.0.1:{7490 + id}", match=match)


def status(**changes: Any) -> FarmStatus:
    """Of a member that knows nothing yet, on node 0."""
    found: dict[str, Any] = {
        "node": 0,
        "id": 1,
        "farm": "farm",
        "out": "",
        "posts": 0,
        "posts_failed": 0,
        "act": ActsStatus(ended=[], waiting=0),
        "directory": SignedDirectory(),
        "view": view(),
    }
    return FarmStatus(**found | changes)
