"""An operator who keeps the newest sealed segments of a shard and gives up what is older, as the
keeper of a node does: extents are used again.
"""

from appliance.base.prng import Prng
from appliance.formats import record
from appliance.formats import session as ses
from appliance.formats.envelope import OPERATION_APPEND, Header
from appliance.formats.event import encode_retain
from appliance.formats.geometry import Geometry
from appliance.simulation.checkers.rooms import RoomsModel
from appliance.simulation.delay import ticks_around
from appliance.simulation.operator import Operator
from appliance.simulation.options import Options
from appliance.simulation.schedule import TICK_US, Schedule
from appliance.simulation.sessions import Session

PAUSE_TICKS_MEAN = 100  # between two looks
KEEPER_BIT = 1 << 63  # of the names of its records: no device has it


class Keeper:
    """A task of the operator: one retain record after the other, each when there is need."""

    def __init__(
        self,
        *,
        options: Options,
        geometry: Geometry,
        schedule: Schedule,
        operator: Operator,
        rooms: RoomsModel,
    ) -> None:
        self.options, self.geometry, self.schedule = options, geometry, schedule
        self.operator, self.rooms = operator, rooms
        self.prng = Prng(options.seed + 2)  # what other worlds draw stays as it is
        self.active = True  # whether it may ask for more
        self.dropped = 0  # segments so far
        self._client_id, self._client_seq, self._made = self.prng.bytes(16), 1, 0
        self._raw = b""  # the record that is not answered yet

    def begin(self) -> None:
        """Draw the moment of the first look."""
        if self.options.keep_segments:
            self._pause()

    def waiting(self) -> str:
        """What the operator still waits for, in words."""
        return "the operator waits for the end of segments" if self._raw else ""

    def _pause(self) -> None:
        self.schedule.after(ticks_around(self.prng, PAUSE_TICKS_MEAN) * TICK_US, self._poll)

    def _poll(self) -> None:
        if not self.active:
            return
        sealed = self.rooms.log_seq // self.geometry.segment_records
        oldest = sealed - self.options.keep_segments
        if oldest <= self.rooms.oldest:
            self._pause()
            return
        self._made += 1
        self._raw = record.encode(
            room_id=record.SHARD_ROOM_ID,
            msg_id=(KEEPER_BIT | self._made).to_bytes(16, "little"),
            author_id=0,
            body=encode_retain(oldest, unshipped=True),
            client_id=self._client_id,
            client_seq=self._client_seq,
            kind=record.KIND_RETAIN,
        )
        self.rooms.on_ask(self._raw)
        self.operator.open(self)

    def registered(self, session: Session) -> None:
        """The session is there, for the first time or anew."""
        self.operator.sessions.request(session, OPERATION_APPEND, self._raw, 1)

    def answered(self, session: Session, results: bytes, header: Header) -> None:
        """It is done; or the group does not remember the operator, who takes another name."""
        code = ses.RESULT_STRUCT.unpack(results)[3]
        self._raw = b""
        if code in (ses.OK, ses.DUPLICATE):
            self._client_seq += 1
            self.dropped += 1
        else:
            self._client_id, self._client_seq = self.prng.bytes(16), 1
        self.operator.close(session)
        self._pause()
