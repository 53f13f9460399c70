"""From what the objects say of a room to what a client is shown of it."""

from collections.abc import Callable
from typing import Any, Literal
from uuid import UUID

from appliance.base import errors
from appliance.base.errors import InputError
from appliance.cores.edge.people import States
from appliance.formats.client.objects import ObjectEvent, ObjectItem
from appliance.formats.client_errors import ObjectRefused, ObjectsFull, Unavailable

REFUSALS = (errors.TextRefused.code, errors.EditRefused.code)
_TEXTS: tuple[Literal["topic", "description", "avatar"], ...] = ("topic", "description", "avatar")
Author = Callable[[str], str]  # author@site -> as clients know them


def present_items(
    answer: dict[str, Any], own: str, people: States, author: Author
) -> list[ObjectItem]:
    """Of a room's state: all but the reactions. `own`: who asked; `people`: who is there."""
    texts = zip(_TEXTS, answer["texts"], strict=True)
    items = [ObjectItem(kind=kind, text=text) for kind, text in texts if text]
    ids = filter(None, map(message_id, answer["pins"]))
    items += [ObjectItem(kind="pin", msg_id=msg_id) for msg_id in ids]
    if answer["op"]:
        items.append(ObjectItem(kind="read_marker", author=own, op=answer["op"]))
    for user, name, about, picture, seen_ms in answer["people"]:
        items.append(
            ObjectItem(
                kind="profile",
                author=author(user),
                text=name or None,
                about=about or None,
                picture=picture or None,
                timestamp=1000 * seen_ms or None,
            )
        )
    for user, state in sorted(people.items()):
        items.append(ObjectItem(kind="presence", author=author(user), text=state))
    return items


def reaction_items(rows: list[list[str]], author: Author) -> list[ObjectItem]:
    """[message, author@site, emoji] each."""
    return [
        ObjectItem(kind="reaction", msg_id=msg_id, author=author(user), text=emoji)
        for message, user, emoji in rows
        if (msg_id := message_id(message)) is not None
    ]


def refusal(code: int, reason: str) -> InputError:
    """What the objects refuse, as clients are told."""
    if code == errors.ObjectsFull.code:
        return ObjectsFull(reason)
    return ObjectRefused(reason) if code in REFUSALS else Unavailable(reason)


def told_fields(change: dict[str, Any], author: Author, site: int) -> dict[str, Any] | None:
    """Room and fields of the event for a change of a room; None: it is told to nobody."""
    kind = change["kind"]
    if kind == "read_marker":
        room, _, of_site = change["room"].rpartition("@")
        if of_site != str(site) or not change["op"]:
            return None
        return {"room": room, "author": author(change["user"]), "op": change["op"]}
    if kind == "pin" or kind == "reaction":
        msg_id = message_id(change["message"])
        if msg_id is None:
            return None
        fields = {"room": change["room"], "msg_id": msg_id, "present": change["present"]}
        if kind == "reaction":
            fields |= {"author": author(change["user"]), "text": change["text"]}
        return fields
    if kind == "seen":
        return None
    return {"room": change["room"], "text": change["text"] or None}


def profile_event(author: str, name: str, about: str, picture: str) -> ObjectEvent:
    return ObjectEvent(
        kind="profile",
        author=author,
        text=name or None,
        about=about or None,
        picture=picture or None,
    )


def message_id(text: str) -> UUID | None:
    """Of a message; None: the objects hold a name that none can have."""
    try:
        return UUID(text)
    except ValueError:
        return None
