"""What the clients of this site are told of shared rooms, and who types here and elsewhere.

Said by the objects of the node, as what edges say to each other is: it may be lost, and an edge
asks for places again. A site that was formatted without objects is told nothing.
"""

import asyncio
from pathlib import Path
from typing import Any, Protocol

from appliance.base.errors import CausalRefused
from appliance.base.limits import POSITIONS_ASKED_MAX, POSITIONS_TOLD_MAX
from appliance.cores.federation import effects as told
from appliance.drivers.host.node_folder import SOCKETS_FOLDER, NodeFolder
from appliance.drivers.network.objects_link import OBJECTS_SOCKET, ObjectsLink
from appliance.formats.causal.ephemeral import Typing, decode_ephemeral, encode_ephemeral
from appliance.formats.live import Position, Positions, TypingAfar, plain_said
from appliance.formats.room_name import room_id_of
from appliance.roles.federation.rooms import SharedRoom, channel_name

_TOLD_S = 0.1  # between two times that what is new is told


class Rooms(Protocol):
    """Where rooms are that this node carries, and how something is said in one."""

    def live_rooms(self) -> list[SharedRoom]:
        """All of them."""

    def live_room(self, channel: str) -> SharedRoom | None:
        """One of them."""

    def say_ephemeral(self, channel: str, content: bytes) -> None:
        """To the other sites, once."""

    def count(self, reason: str) -> None:
        """Something was dropped."""


class Telling:
    """Of one node. Nothing is told of rooms that another node carries."""

    def __init__(self, node: NodeFolder, rooms: Rooms) -> None:
        self._rooms, self._suffix = rooms, f"@{node.site.number}"
        self._timer: asyncio.TimerHandle | None = None
        self._has_objects = bool(node.node.objects_port)
        self._link = ObjectsLink(
            Path(SOCKETS_FOLDER) / OBJECTS_SOCKET,
            self,
            cluster=node.site.cluster,
            on_live=self._on_live,
            wake=_nothing,
        )

    def start(self) -> None:
        """What is new is told from now on."""
        if self._has_objects:
            self._link.start()
            self._timer = asyncio.get_running_loop().call_later(_TOLD_S, self._tell_new)

    def still(self) -> None:
        """Tell nothing more of itself."""
        if self._timer is not None:
            self._timer.cancel()

    async def close(self) -> None:
        await self._link.close()

    # --- what happens in the channels

    def on_event(self, room: SharedRoom, event: told.Effect) -> None:
        """Of a room that is carried here."""
        if isinstance(event, told.Holds):
            room.positions.on_holds(event.sender, event.message_ids)
        elif isinstance(event, told.Delivered):
            room.positions.on_delivered(event)
        elif isinstance(event, told.Ephemeral):
            self._on_ephemeral(room, event)

    def _on_ephemeral(self, room: SharedRoom, event: told.Ephemeral) -> None:
        member = room.members.get(event.sender)
        try:
            if member is None or not member.may_send:
                raise CausalRefused("right", f"{event.sender} may only read")
            typing = decode_ephemeral(event.content)
        except CausalRefused as error:
            self._rooms.count(error.reason)
            return
        author = f"{typing.author}@{event.sender}"
        self._link.say(plain_said(TypingAfar(room.name, author, typing.types)))

    def _tell_new(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(_TOLD_S, self._tell_new)
        for room in self._rooms.live_rooms():
            if room.positions.fresh:
                self._tell(room, room.positions.take_fresh(POSITIONS_TOLD_MAX))

    def _tell(self, room: SharedRoom, positions: list[Position], edge: str = "") -> None:
        said = Positions(room.name, room.identity.site, sorted(room.others), edge, positions)
        self._link.say(plain_said(said))

    # --- what happens at this site

    def _on_live(self, said: dict[str, Any]) -> None:
        if said["kind"] == "typing" and said["user"].endswith(self._suffix):
            channel = channel_name(room_id_of(said["room"]))
            room = self._rooms.live_room(channel)
            if room is not None and room.may_send:
                typing = Typing(said["user"].removesuffix(self._suffix), said["types"])
                self._rooms.say_ephemeral(channel, encode_ephemeral(typing))
        elif said["kind"] == "places_wanted":
            self._answer(said)

    def _answer(self, said: dict[str, Any]) -> None:
        room = self._rooms.live_room(said["room"])
        if room is None:
            return  # another node carries it, or nobody
        first = max(said["first"], said["last"] - POSITIONS_ASKED_MAX + 1)
        positions = room.positions.between(first, said["last"])
        for start in range(0, len(positions), POSITIONS_TOLD_MAX):
            self._tell(room, positions[start : start + POSITIONS_TOLD_MAX], said["edge"])

    # --- of the link

    def on_attached(self) -> None: ...

    def on_detached(self) -> None: ...

    def on_answer(self, number: int, answer: dict[str, Any]) -> None: ...

    def on_changes(self, changes: list[dict[str, Any]]) -> None: ...


def _nothing() -> None:
    """Nothing needs to be woken: what comes is handled as it comes."""
