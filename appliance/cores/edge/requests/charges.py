"""Every frame counts against the rates of device, user, address, room, also one that is refused."""

from appliance.base.errors import InputError
from appliance.base.limits import TURN_COST_SIZE
from appliance.cores.edge.admission import Admission
from appliance.cores.edge.requests.clock import Clock
from appliance.cores.edge.session import Session
from appliance.formats.client.sending import SendItem
from appliance.formats.client_errors import RateLimited


class Charges:
    """Counts what clients do."""

    def __init__(self, clock: Clock, admission: Admission, counters: dict[str, int]) -> None:
        self._clock, self._admission, self._counters = clock, admission, counters

    def count(self, name: str, by: int = 1) -> None:
        """Add to a counter, for metrics."""
        self._counters[name] = self._counters.get(name, 0) + by

    def admit_address(self, address: str) -> int:
        """Count a try of somebody who is nobody yet; milliseconds to wait if too many."""
        return self._admission.admit_address(self._clock.now_ns, address)

    def admit_user(self, author_id: int) -> int:
        """Count a hello of a user; milliseconds to wait if too many."""
        return self._admission.admit_user(self._clock.now_ns, author_id)

    def charge(self, session: Session, count: int) -> None:
        """Count what is no message; raises RateLimited."""
        granted, name, wait_ms = self.admit(session, count)
        if granted < min(count, 1):
            raise RateLimited(f"too much for this {name}", wait_ms)

    def charge_refused(self, session: Session, count: int = 1) -> int:
        """Count what is refused whatever the rates say; milliseconds to wait if that is too much.
        All of it counts: to refuse a message costs nearly what it costs to take one."""
        if session.state == "new":
            return self.admit_address(session.address)
        assert session.claims is not None
        return self._admission.admit_refused(
            self._clock.now_ns,
            count,
            device=session.device,
            user=session.claims.author_id,
            address=session.address,
        )

    def charge_malformed(self, session: Session, size: int) -> int:
        """Count a frame that is none, by its bytes; milliseconds to wait if that is too much."""
        self.count("malformed")
        return self.charge_refused(session, 1 + size // TURN_COST_SIZE)

    def count_error(self, error: InputError, by: int = 1) -> None:
        """A client was answered with `error`."""
        self.count("error_" + error.name, by)

    def refuse_items(
        self, session: Session, items: list[SendItem], error: InputError, wait_ms: int = 0
    ) -> None:
        """Answer messages with an error; the frame counts as refused."""
        if items:
            self.count_error(error, len(items))
            session.refuse_items(error, items)
            session.refused_ms = max(session.refused_ms, wait_ms, error.retry_after_ms)

    def admit(
        self, session: Session, count: int, room_id: bytes | None = None
    ) -> tuple[int, str, int]:
        """How many of `count` may pass now; counted against device, user, address and room."""
        assert session.claims is not None
        return self._admission.admit(
            self._clock.now_ns,
            count,
            device=session.device,
            user=session.claims.author_id,
            address=session.address,
            room=room_id,
        )

    def charge_work(self, session: Session, count: int) -> None:
        """Count what an answer cost beyond its frame: who comes next waits for it."""
        assert session.claims is not None
        self._admission.charge(
            self._clock.now_ns,
            count,
            device=session.device,
            user=session.claims.author_id,
            address=session.address,
        )
