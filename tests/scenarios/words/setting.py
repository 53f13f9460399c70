"""What the first lines of a story set, before its group starts."""

from dataclasses import replace
from typing import Any

from appliance.formats.geometry import SMALL
from tests.scenarios.story import Vocabulary

LARGE = replace(
    SMALL,
    slot_count=20,
    checkpoint_ops=8,
    message_size_max=1 << 20,
    records_max=468,
    reply_size_max=32 << 10,
    segment_records=1_000,
)

words = Vocabulary()


@words.line("{n} replicas", "{n} replica")
def replicas(stage: dict[str, Any], n: str) -> None:
    stage["replica_count"] = int(n)


@words.line("{n} clients", "{n} client")
def clients(stage: dict[str, Any], n: str) -> None:
    stage["clients"] = int(n)


@words.line("{n} standbys", "{n} standby")
def standbys(stage: dict[str, Any], n: str) -> None:
    stage["standby_count"] = int(n)


@words.line("{n} newcomer", "{n} newcomers")
def newcomers(stage: dict[str, Any], n: str) -> None:
    """Machines that are called like standbys and are no members yet."""
    stage["standby_count"] = stage["newcomers"] = int(n)


@words.line("{n} segments")
def segments(stage: dict[str, Any], n: str) -> None:
    """Extents on each disk, instead of plenty."""
    stage["segments_max"] = int(n)


@words.line("messages of a megabyte")
def large(stage: dict[str, Any]) -> None:
    """Requests as large as in production, in a ring of few slots."""
    stage["geometry"] = LARGE


@words.line("a pause before clients register")
def unhurried(stage: dict[str, Any]) -> None:
    """No client yet."""
    stage["clients"] = 0
