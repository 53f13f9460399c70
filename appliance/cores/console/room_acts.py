"""Acts on rooms: one is created, closed, opened again."""

from appliance.cores.console.act import (
    SITE,
    Act,
    Asked,
    Written,
    done,
    of_site,
    said,
    short_of_quorum,
)
from appliance.formats.room_name import room_name_fault

_ROOM = (Asked("room", "Name of the room"),)


def _unfit(written: Written) -> str:
    return room_name_fault(written["room"])


def _act(name: str, label: str, sentence: str, waits: str, verb: str) -> Act:
    """Which room, is written."""
    return Act(
        name,
        (),
        (SITE,),
        said(label),
        of_site,
        said(sentence),
        short_of_quorum,
        said(waits),
        done,
        said(verb),
        asks=_ROOM,
        unfit=_unfit,
    )


ROOM_ACTS: tuple[Act, ...] = (
    _act(
        "room-create",
        "Create a room…",
        "The room is there for everybody who may read it; one that exists stays as it is.",
        "the room to be committed",
        "tigerchat room create NAME",
    ),
    _act(
        "room-close",
        "Close a room…",
        "The room takes no messages until it is opened again; what was said stays and can be read.",
        "the room to be closed",
        "tigerchat room close NAME",
    ),
    _act(
        "room-reopen",
        "Open a closed room again…",
        "The room takes messages again.",
        "the room to be open",
        "tigerchat room reopen NAME",
    ),
)
