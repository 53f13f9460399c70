"""What a replica sends: framed, signed, and on its way to members or to the client that asked."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from appliance.base.limits import CLIENT_ROUTES_MAX
from appliance.base.signature import SigningKey
from appliance.drivers.network.framing import Signer
from appliance.drivers.network.link import Connection, Link
from appliance.formats.envelope import by_command


class Frames:
    """`links` of other members by their ids; `local` signs for processes of this node, `key` for
    all others, as member number `sender`. `incarnation`: the one that is durable now."""

    def __init__(
        self,
        links: Mapping[bytes, Link],
        local: Signer,
        *,
        sender: int,
        key: SigningKey,
        counters: Counter[str],
    ) -> None:
        self._links, self._local = links, local
        self._sender, self._key, self._counters = sender, key, counters
        self._signer: Signer | None = None  # once an incarnation is known
        self._sent = [0] * 256  # messages, by command
        self._clients: dict[bytes, Connection] = {}  # newest last

    def _frame(
        self, incarnation: int, header: Any, body: Any, route: int = 0
    ) -> bytes | memoryview:
        signer = self._signer
        if signer is None:
            signer = self._signer = Signer(
                sender=self._sender, key=self._key, incarnation=incarnation
            )
        elif signer.nonce >> 32 != incarnation:
            signer.renew(incarnation)  # peers remembered a later one than this
        return signer.frame(header, body, route)

    def send(
        self, incarnation: int, members: tuple[bytes, ...], header: Any, body: Any, route: int
    ) -> None:
        """Framed and signed once, whoever gets it; nobody there, nothing signed."""
        frame = None
        for replica_id in members:
            link = self._links.get(replica_id)  # None: not described in the site file yet
            if link is not None and link.connected:
                if frame is None:
                    frame = self._frame(incarnation, header, body, route)
                if link.send(frame):
                    self._sent[header.command] += 1

    def send_client(self, incarnation: int, client: bytes, header: Any, body: Any) -> None:
        """On the connection on which the client was last heard."""
        connection = self._clients.get(client)
        if connection is None:
            self._counters["client_unknown"] += 1
            return
        if connection.node is None:
            frame = self._local.frame(header, body)
        else:
            frame = self._frame(incarnation, header, body)
        if connection.send(frame):
            self._sent[header.command] += 1
        else:
            del self._clients[client]

    def answer(self, incarnation: int, connection: Connection, header: Any, body: Any) -> None:
        """To an edge of another node, on the connection on which it asked."""
        if connection.send(self._frame(incarnation, header, body)):
            self._sent[header.command] += 1

    def remember(self, client: bytes, connection: Connection) -> None:
        """Where a client was heard. Clients of a lost connection are forgotten when they are
        answered in vain."""
        clients = self._clients
        if clients.get(client) is connection:
            return
        clients.pop(client, None)
        clients[client] = connection
        if len(clients) > CLIENT_ROUTES_MAX:
            del clients[next(iter(clients))]

    @property
    def nonces_left(self) -> int | None:
        """How many more can be signed in this incarnation; None: none was yet."""
        return None if self._signer is None else self._signer.left()

    def figures(self) -> dict[str, Any]:
        """For the status of the replica, by its names."""
        nonce = 0 if self._signer is None else self._signer.nonce
        return {"nonce": nonce, "sent": by_command(self._sent)}
