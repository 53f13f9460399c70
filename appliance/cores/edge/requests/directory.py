"""The farm's directory, handed on as it was signed; and whether it lets clients come here."""

from appliance.base.limits import CLIENT_FRAME_SIZE_MAX, KIB
from appliance.cores.edge.requests.charges import Charges
from appliance.cores.edge.requests.handler import Handler
from appliance.cores.edge.session import Session
from appliance.formats.client.connection import NextNode
from appliance.formats.client.directory import DirectoryAnswer, DirectoryRequest
from appliance.formats.client_errors import GoElsewhere, LimitReached

_WORK_SIZE = 32 * KIB  # of what is answered, that counts as one message
# JSON escapes quotation marks, of which a directory has many: twice the size at worst
_SIGNED_SIZE_MAX = CLIENT_FRAME_SIZE_MAX // 2 - KIB


class Directories:
    """`excluded`: the operator keeps this node out of the directory; `elsewhere`: the address that
    a client is sent to then, another one at each call."""

    def __init__(self, *, charges: Charges) -> None:
        self.excluded = False
        self._charges = charges
        self._signed, self._version = "", 0
        self._elsewhere: tuple[str, ...] = ()
        self._turn = 0
        self.handlers: dict[type, Handler] = {DirectoryRequest: self._ask}

    def learn(self, signed: bytes, version: int, elsewhere: tuple[str, ...]) -> None:
        """There is a newer directory, verified. `elsewhere`: where clients of this node are to go
        as it is kept out; empty while it is not, or nobody else serves."""
        self._signed, self._version = signed.decode(), version
        self._elsewhere, self.excluded = elsewhere, bool(elsewhere)

    def go_elsewhere(self, session: Session, spread_ms: int = 0) -> GoElsewhere:
        """With what a client of an excluded node is refused, which is told where to go."""
        self._turn += 1
        url = self._elsewhere[self._turn % len(self._elsewhere)]
        session.send(NextNode(url=url, spread=spread_ms))
        return GoElsewhere(f"this node is kept out of the directory; go to {url}")

    def _ask(self, session: Session, frame: DirectoryRequest) -> bool:
        if len(self._signed) > _SIGNED_SIZE_MAX:
            raise LimitReached("the directory is too large for a frame: ask GET /directory")
        self._charges.charge_work(session, len(self._signed) // _WORK_SIZE)
        session.send(
            DirectoryAnswer(version=self._version, signed=self._signed, request=frame.request)
        )
        return True
