"""How late shipping is, as a replica sees it by what the log says."""

from typing import Any

from appliance.cores.shipping.plan import SECOND_US, period_end
from appliance.formats.checkpoint import ShippingState
from appliance.formats.settings import SHIP_OFF, Settings


def shipping_facts(state: ShippingState, settings: Settings, log_us: int) -> dict[str, Any]:
    """Who ships, how far, and how late that is by this node's settings; 0 while nobody began.
    `log_us`: the log's time now, by the clock or ahead of it."""
    late_us = 0
    if state.period_start_us:
        announced = state.announced_end > 0
        length = state.period_us if announced else settings.ship_period_s * SECOND_US
        late_us = max(0, log_us - period_end(state.period_start_us, length))
    return {
        **state._asdict(),
        "manifest_hash": state.manifest_hash.hex(),
        "late_s": late_us / SECOND_US,
        "late_s_max": 0 if settings.ship_target == SHIP_OFF else settings.ship_late_s,
    }
