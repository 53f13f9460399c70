"""What a batch changes of what the product shows, each change once.

The states are compared before and after, merged over all objects of a key: a packet that came
twice, or by two ways, or says what another object of the key said already, changes nothing. Too
much at once, as after a long time alone, is told as one `reset`: whoever follows asks anew.

    {"kind": "topic" | "description" | "avatar", "room", "text"}
    {"kind": "pin", "room", "message", "present"}
    {"kind": "reaction", "room", "message", "user", "text", "present"}    text: the emoji
    {"kind": "read_marker", "room", "user", "op"}                         room: `room@site`
    {"kind": "profile", "user", "name", "about", "picture"}
    {"kind": "seen", "user", "seen_ms"}
    {"kind": "reset"}
"""

from collections.abc import Callable
from typing import Any

from appliance.base.limits import OBJECT_CHANGES_MAX
from appliance.cores.metadata import product
from appliance.cores.metadata.objects import Objects
from appliance.cores.metadata.state_table import StateTable
from appliance.cores.metadata.store import id_of_name
from appliance.formats.toytlv.ids import Id

Change = dict[str, Any]
_Shown = dict[tuple[str, ...], Any]  # what is told of -> its value, where it is not the default


def changes(objects: Objects, table: StateTable) -> list[Change]:
    """Of what waits in the table to be written."""
    touched = {id_of_name(key[1:]).object for key in table.touched}
    keys = {named for of in sorted(touched) if (named := objects.key_of(of)) is not None}
    if len(keys) > OBJECT_CHANGES_MAX:
        return [{"kind": "reset"}]
    found: list[Change] = []
    for of_class, key in sorted(keys):
        shown = _SHOWN.get(of_class)
        if shown is None:
            continue
        after = shown(objects, key)
        with table.as_stored():
            before = shown(objects, key)
        told = [name for name in (before | after) if before.get(name) != after.get(name)]
        found += [_change(name, after.get(name)) for name in told]
    return found if len(found) <= OBJECT_CHANGES_MAX else [{"kind": "reset"}]


def _change(name: tuple[str, ...], value: Any) -> Change:
    kind, *of = name
    if kind == "pin":
        return {"kind": kind, "room": of[0], "message": of[1], "present": value is True}
    if kind == "reaction":
        room, message, user, emoji = of
        row = {"kind": kind, "room": room, "message": message, "user": user, "text": emoji}
        return row | {"present": value is True}
    if kind == "read_marker":
        return {"kind": kind, "user": of[0], "room": of[1], "op": value}
    if kind == "profile":
        shown, about, picture = value
        return {"kind": kind, "user": of[0], "name": shown, "about": about, "picture": picture}
    if kind == "seen":
        return {"kind": kind, "user": of[0], "seen_ms": value}
    return {"kind": kind, "room": of[0], "text": value or ""}


def _room(objects: Objects, room: str) -> _Shown:
    texts = zip(("topic", "description", "avatar"), objects.described(room), strict=True)
    shown: _Shown = {(name, room): text for name, text in texts if text}
    return shown | {("pin", room, message): True for message in objects.pins(room)}


def _reactions(objects: Objects, message: str) -> _Shown:
    return {
        ("reaction", room, message, user, emoji): True
        for room in objects.rooms_of(message)
        for user, emoji in objects.reactions(message, room)
    }


def _markers(objects: Objects, user: str) -> _Shown:
    return {("read_marker", user, room): op for room, op in objects.read_markers(user).items()}


def _profile(objects: Objects, user: str) -> _Shown:
    return {("profile", user): objects.profile(user)}


def _presence(objects: Objects, user: str) -> _Shown:
    return {("seen", user): objects.seen_ms(user)}


_SHOWN: dict[Id, Callable[[Objects, str], _Shown]] = {
    product.ROOM: _room,
    product.REACTIONS: _reactions,
    product.READ_MARKERS: _markers,
    product.PROFILE: _profile,
    product.PRESENCE: _presence,
}
