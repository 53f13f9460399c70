"""People who follow where the messages of a shared room stand, and how a room comes to be one."""

from typing import Any

from appliance.formats.client.federation import FederationEvent, FederationRequest, PlacedMessage
from appliance.formats.client.frame import Frame
from appliance.formats.room_name import room_id_of
from appliance.roles.federation.rooms import channel_name
from tests.system.federated_site import FederatedSite, said
from tests.system.object_client import ObjectClient


def carried_as(room: str) -> str:
    return channel_name(room_id_of(room))


def share(paris: FederatedSite, oslo: FederatedSite, room: str, right: str = "") -> None:
    """Both take part in it."""
    accept = paris.federation("share", room, "--with", "oslo" + right).removeprefix("tigerchat ")
    said(*accept.split(), "--local", str(oslo.folder))


class Follower(ObjectClient):
    """A device that keeps the newest place of each message it was told of."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.places: dict[int, PlacedMessage] = {}

    def _on_frame(self, frame: Frame) -> None:
        if isinstance(frame, FederationEvent):
            self.places |= {place.op: place for place in frame.messages}
        super()._on_frame(frame)

    def ask_places(self, frame: FederationRequest) -> None:
        self._send(frame)

    def order(self) -> list[tuple[int, str]]:
        return sorted((place.lamport, place.message_id) for place in self.places.values())

    def ticks(self) -> set[str]:
        """Sites that have some message of ours."""
        found = [place.acknowledged for place in self.places.values()]
        return {site for one in found if one for site in one.split()}

    @property
    def typing(self) -> set[str | None]:
        return {event.author for event in self.events if event.kind == "typing"}


def follower(site: FederatedSite, user: str, subprotocol: str) -> Follower:
    access = site.access(user)
    return Follower(access.endpoints, access.token, subprotocol=subprotocol)
