"""What the member of a node asks of whoever leads: as itself, and acts as an administrator."""

import time
from collections.abc import Callable
from typing import Any

from appliance.base.errors import FarmPostFailed
from appliance.cores.directory.directory import Directory, canonical
from appliance.cores.raft.dial import Challenges, Credentials
from appliance.drivers.network.farm_stream import Route
from appliance.formats.raft_legacy.configuration import Server, encode_server_id, endpoint_address
from appliance.formats.raft_legacy.frame import (
    CLIENT_REQUEST,
    CLUSTER_SERVER,
    REMOVE_SERVER,
    Entry,
    Request,
)
from appliance.roles.farm.client import FarmClient
from appliance.roles.farm.link import Keys
from appliance.roles.farm.settings import TLS, FarmSettings

POST_S = 15.0  # for a post to be answered yes; then the next look begins anew


class Posts:
    """`taken` and `failed`: how many statuses were."""

    def __init__(
        self,
        settings: FarmSettings,
        own_key: bytes,
        administrator: Callable[[], Credentials | None],
    ) -> None:
        """`own_key`: digest of this node's own. `administrator`: None as long as acts are asked
        for as a member, which is enough where a farm has no administrator."""
        self._settings, self._own_key, self._administrator = settings, own_key, administrator
        self.client = self._client_of(settings.credentials())
        self._acting: FarmClient | None = None
        self._date_ms = 0
        self.taken = self.failed = 0

    def _client_of(self, credentials: Credentials | None) -> FarmClient:
        settings = self._settings
        own = Server(settings.id, settings.endpoint)
        servers = [own, *settings.peers, *settings.known]
        return FarmClient(servers, Keys(settings.farm, credentials, Challenges()), self._route)

    @property
    def acting(self) -> FarmClient:
        """Who asks for acts."""
        if self._acting is None and (found := self._administrator()) is not None:
            self._acting = self._client_of(found)
        return self._acting or self.client

    def _route(self, server_id: int, endpoint: str) -> Route:
        host_name, port = endpoint_address(endpoint)
        own = self._own_key if server_id == self._settings.id else b""
        pin = self._settings.pins.get(server_id, own) if self._settings.carrier == TLS else None
        return Route(host_name, port, pin)

    async def close(self) -> None:
        await self.client.close()
        if self._acting is not None:
            await self._acting.close()

    def next_date_ms(self, directory: Directory) -> int:
        """Now, and later than all that this node has posted: what is older would not count. What
        no clock could have said, as ours did before it was set, holds it back no more."""
        now_ms = int(time.time() * 1000)
        held = directory.documents.get(self._settings.id)
        before = [self._date_ms, held.date if held is not None else 0]
        most = directory.date_ms_max(now_ms)
        self._date_ms = max([now_ms, *(date + 1 for date in before if date < most)])
        return self._date_ms

    async def act(self, directory: Directory, config: dict[str, Any]) -> int:
        """Post an administrator's word; up to which index the log has to be applied for it to show.
        FarmPostFailed when nobody says yes in time.

        Its date is later than that of the act before, whichever node with whichever clock it came
        from.
        """
        date_ms = max(self.next_date_ms(directory), directory.acted_ms() + 1)
        settings = self._settings
        word = {"cluster": settings.farm, "date": date_ms, "id": settings.id, "config": config}
        acting = self.acting
        await acting.post([canonical(word)], POST_S)
        return acting.index

    async def remove(self, server_id: int) -> bool:
        """Ask whoever leads to take a member out; True: it has begun."""
        value = encode_server_id(server_id)
        request = Request(REMOVE_SERVER, entries=(Entry(0, CLUSTER_SERVER, value),))
        acting = self.acting
        try:
            await acting.ask(Request(CLIENT_REQUEST), POST_S)  # who leads is the guess then
        except FarmPostFailed:
            return False
        answer = await acting.ask_once(request)
        return answer is not None and answer.accepted
