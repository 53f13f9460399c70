"""Topic, pins and reactions of one room, as its reader knows them: what is news to him, each once.

Nodes tell everything that holds, again whenever events may have been missed, and between that each
change. Reactions to a message that the reader was not shown wait until he is; those that came as a
change do not, as they are what happens now.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple
from uuid import UUID

from appliance.base.limits import PINS_MAX, REACTIONS_MAX
from appliance.formats.client.objects import ObjectEvent, ObjectItem, ObjectState

KINDS = ("topic", "pin", "reaction")
KEPT_MAX = 10_000  # messages shown, and messages with reactions; the oldest are forgotten


class Change(NamedTuple):
    """`op` is the number of the message that it is about, if the reader was shown it."""

    event: ObjectEvent
    op: int | None = None


class RoomObjects:
    """`reactions`: of each message, (author, emoji) and whether the reader was told."""

    def __init__(self) -> None:
        self.topic = ""
        self.pins: dict[UUID, None] = {}
        self.reactions: dict[UUID, dict[tuple[str, str], bool]] = {}
        self._shown: dict[UUID, int] = {}

    def take(self, frame: ObjectState | ObjectEvent) -> list[Change]:
        """What a node says; what of it the reader is to be told now."""
        if isinstance(frame, ObjectEvent):
            return self._changed(frame) if frame.kind in KINDS else []
        return self._replaced(frame)

    def shown(self, msg_id: UUID, op: int) -> list[Change]:
        """The reader is shown this message: what of it he was not told."""
        self._shown[msg_id] = op
        _bound(self._shown, KEPT_MAX)
        found = self.reactions.get(msg_id, {})
        untold = [key for key, is_told in found.items() if not is_told]
        found |= dict.fromkeys(untold, True)
        return [self._change(_reaction(msg_id, key)) for key in untold]

    def _change(self, event: ObjectEvent) -> Change:
        return Change(event, None if event.msg_id is None else self._shown.get(event.msg_id))

    def _changed(self, event: ObjectEvent) -> list[Change]:
        if event.kind == "topic":
            is_news = self.topic != (event.text or "")
            self.topic = event.text or ""
        elif event.msg_id is None:
            return []
        elif event.kind == "pin":
            is_news = (event.msg_id in self.pins) != event.present
            self.pins.pop(event.msg_id, None)
            if event.present:
                self.pins[event.msg_id] = None
            _bound(self.pins, PINS_MAX)
        else:
            is_news = self._react(event.msg_id, _key(event), present=event.present)
        return [self._change(event)] if is_news else []

    def _react(
        self, msg_id: UUID, key: tuple[str, str], *, present: bool, told: bool = True
    ) -> bool:
        """Whether that is news to somebody who was told of it, or who is now."""
        found = self.reactions.setdefault(msg_id, {})
        was_told = found.pop(key, None)
        if present:
            found[key] = told or bool(was_told)
        _bound(found, REACTIONS_MAX)
        if not found:
            del self.reactions[msg_id]
        _bound(self.reactions, KEPT_MAX)
        return not was_told and told if present else bool(was_told)

    def _replaced(self, state: ObjectState) -> list[Change]:
        """All that holds now; of reactions, to messages that are not older than the cursor."""
        pins = {item.msg_id for item in state.items if item.kind == "pin"}
        now = {
            (item.msg_id, _key(item))
            for item in state.items
            if item.kind == "reaction" and item.msg_id is not None
        }
        topics = [item.text for item in state.items if item.kind == "topic"]
        news = self._changed(ObjectEvent(kind="topic", text=topics[0] if topics else None))
        for msg_id in [pin for pin in self.pins if pin not in pins]:
            news += self._changed(ObjectEvent(kind="pin", msg_id=msg_id, present=False))
        for gone in [one for one in self._known(state.cursor) if one not in now]:
            if self._react(*gone, present=False):
                news.append(self._change(_reaction(*gone, present=False)))
        for item in state.items:
            if item.kind == "pin":
                news += self._changed(ObjectEvent(kind="pin", msg_id=item.msg_id))
            elif item.kind == "reaction" and item.msg_id is not None:
                told = item.msg_id in self._shown
                if self._react(item.msg_id, _key(item), present=True, told=told):
                    news.append(self._change(_reaction(item.msg_id, _key(item))))
        return news

    def _known(self, cursor: UUID | None) -> Iterator[tuple[UUID, tuple[str, str]]]:
        for msg_id, found in self.reactions.items():
            if cursor is None or msg_id >= cursor:
                yield from ((msg_id, key) for key in found)


def _bound(found: dict[Any, Any], most: int) -> None:
    """One that was added may have been one too many: the oldest leaves."""
    if len(found) > most:
        del found[next(iter(found))]


def _key(event: ObjectEvent | ObjectItem) -> tuple[str, str]:
    return event.author or "", event.text or ""


def _reaction(msg_id: UUID, key: tuple[str, str], present: bool = True) -> ObjectEvent:
    author, emoji = key
    return ObjectEvent(kind="reaction", msg_id=msg_id, author=author, text=emoji, present=present)
