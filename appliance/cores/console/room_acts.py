"""Acts on rooms: one is created, closed, opened again, renamed, told who may what there."""

from dataclasses import replace

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
from appliance.formats.room_limits import ALL, MODERATORS, Limits, whom_of, whom_text
from appliance.formats.room_name import room_name_fault

AS_IT_IS = "as it is"  # of a right that is not to be changed
_ROOM = (Asked("room", "Name of the room"),)
_NEW_NAME = Asked("new_name", "Its new name")
_WHO = (
    Asked("read", f"Who may read: {ALL}, {MODERATORS}, or users with commas between", AS_IT_IS),
    Asked("send", "Who may send, likewise", AS_IT_IS),
    Asked("moderate", f"Who may moderate: {ALL}, or users", AS_IT_IS),
)
assert tuple(asked.name for asked in _WHO) == Limits._fields


def whom_written(written: str) -> str | None:
    """As a frame says it; None: it stays as it is."""
    words = written.strip()
    if words == AS_IT_IS:
        return None
    if words in (ALL, MODERATORS):
        return words
    return whom_text(tuple(name.strip() for name in words.split(",")))


def _unfit(written: Written) -> str:
    return room_name_fault(written["room"])


def _unfit_name(written: Written) -> str:
    return _unfit(written) or room_name_fault(written["new_name"])


def _unfit_rights(written: Written) -> str:
    if why := _unfit(written):
        return why
    changed = {right: whom_written(written[right]) for right in Limits._fields}
    for right, whom in changed.items():
        if whom is not None and whom_of(whom, moderate=right == "moderate") is None:
            others = f"{ALL}, users" if right == "moderate" else f"{ALL}, {MODERATORS}, users"
            return f"{right} is {written[right][:40]!r}; allowed: {others} with commas between"
    if all(whom is None for whom in changed.values()):
        return "nothing is to be changed: write who may read, send or moderate"
    return ""


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
    replace(
        _act(
            "room-rename",
            "Give a room another name…",
            "The room is called so from now on; all that it holds stays, and each name that it had "
            "goes on leading to it.",
            "the room to be called so",
            "tigerchat room rename NAME NEW_NAME",
        ),
        asks=(*_ROOM, _NEW_NAME),
        unfit=_unfit_name,
    ),
    replace(
        _act(
            "room-rights",
            "Say who may read, send and moderate in a room…",
            "A token and the room must both allow it from now on; who has the right admin is bound "
            "by the token alone.",
            "the room to say so",
            "tigerchat room rights NAME --send WHO",
        ),
        asks=(*_ROOM, *_WHO),
        unfit=_unfit_rights,
    ),
)
