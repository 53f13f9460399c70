"""Every frame there is, a row each: its code stands at its class, its sender here."""

from appliance.formats.client import (
    connection,
    directory,
    federation,
    finding,
    history,
    objects,
    rooms,
    sending,
    sign_in,
    subscribing,
)
from appliance.formats.client.frame import Frame

FRAMES_CLIENT: tuple[type[Frame], ...] = (
    sending.SendMessage,
    subscribing.SubscribeRoom,
    history.SnapshotRequest,
    sign_in.Hello,
    rooms.CreateRoom,
    rooms.ListRooms,
    sign_in.RefreshToken,
    connection.Ping,
    subscribing.UnsubscribeRoom,
    objects.Topic,
    objects.Description,
    objects.Pin,
    objects.Reaction,
    objects.ReadMarker,
    objects.Profile,
    objects.Presence,
    objects.Typing,
    objects.ObjectRequest,
    federation.FederationRequest,
    directory.DirectoryRequest,
    finding.FindMessage,
    rooms.CloseRoom,
    rooms.RenameRoom,
    rooms.RoomRightsRequest,
    rooms.RoomStateRequest,
)
# without a code: binary says the same in another way
FRAMES_CLIENT_JSON: tuple[type[Frame], ...] = (sending.SendMessages,)
FRAMES_EDGE: tuple[type[Frame], ...] = (
    sending.MessageAck,
    subscribing.MessageEvent,
    history.SnapshotChunk,
    sign_in.Welcome,
    subscribing.Subscribed,
    rooms.RoomAnswer,
    rooms.RoomsPage,
    connection.ErrorFrame,
    connection.Pong,
    subscribing.Unsubscribed,
    connection.NodeState,
    connection.NextNode,
    objects.ObjectAck,
    objects.ObjectEvent,
    objects.ObjectState,
    federation.FederationEvent,
    directory.DirectoryAnswer,
    finding.MessageFound,
    rooms.RoomState,
    rooms.RoomRightsAnswer,
)
_CODES = [frame.code for frame in FRAMES_CLIENT + FRAMES_EDGE]
assert len(set(_CODES)) == len(_CODES)  # a code means one thing for ever
