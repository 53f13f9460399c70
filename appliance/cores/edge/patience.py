"""How long a connection is put up with whose frames are refused.

    refused frames   0 ........ REFUSALS_BURST           answered, as fast as they come
                     beyond, until some are forgiven     answered, but slowly read: a strike each
                     STRIKES_MAX strikes                 closed

A refusal costs the edge nearly as much as what it refuses, so it is not free either. A connection
that went too fast is not read from for a moment: TCP then tells its client to wait, whatever the
client makes of the answer. Integers only, as in `admission`.
"""

from appliance.base.limits import HOLD_MS_MAX, REFUSALS_BURST, REFUSALS_RATE, STRIKES_MAX

_MS_NS = 1_000_000
_COST_NS = 1_000_000_000 // REFUSALS_RATE
_BURST_NS = REFUSALS_BURST * _COST_NS


class Patience:
    """With one connection. Until `held_until_ns` it should not be read from."""

    __slots__ = ("held_until_ns", "_full_at", "_strikes")

    def __init__(self) -> None:
        self.held_until_ns = 0
        self._full_at = self._strikes = 0

    def on_refusal(self, now_ns: int, wait_ms: int) -> bool:
        """A frame was refused, to come again in `wait_ms`, 0 if not because of its rate. True when
        that was one too many."""
        if self._full_at <= now_ns:
            self._strikes = 0
        full_at = max(self._full_at, now_ns) + _COST_NS
        if full_at - now_ns > _BURST_NS:
            self._strikes += 1
            wait_ms = max(wait_ms, _COST_NS // _MS_NS)
            full_at = now_ns + _BURST_NS
        self._full_at = full_at
        held_until_ns = now_ns + min(wait_ms, HOLD_MS_MAX) * _MS_NS
        self.held_until_ns = max(self.held_until_ns, held_until_ns)
        return self._strikes > STRIKES_MAX
