"""How late shipping is, as a replica sees it by what the log says."""

from appliance.cores.shipping.plan import SECOND_US, period_end
from appliance.formats.checkpoint import ShippingState
from appliance.formats.settings import SHIP_OFF, Settings
from appliance.formats.status.replica import ShippingFigures


def shipping_figures(
    state: ShippingState, settings: Settings, log_us: int, *, cursor: int, log_seq: int
) -> ShippingFigures:
    """Who ships, how far, and how late that is by this node's settings; 0 while nobody began.
    `log_us`: the log's time now, by the clock or ahead of it. `cursor`: the newest record that is
    shipped, `log_seq` the newest that there is."""
    late_us = 0
    if state.period_start_us:
        announced = state.announced_end > 0
        length = state.period_us if announced else settings.ship_period_s * SECOND_US
        late_us = max(0, log_us - period_end(state.period_start_us, length))
    return ShippingFigures(
        generation=state.generation,
        node=state.node,
        manifest_count=state.manifest_count,
        manifest_hash=state.manifest_hash.hex(),
        period_start_us=state.period_start_us,
        period_us=state.period_us,
        announced_end=state.announced_end,
        late_s=late_us / SECOND_US,
        late_s_max=0 if settings.ship_target == SHIP_OFF else settings.ship_late_s,
        cursor=cursor,
        log_seq=log_seq,
    )


def state_in(figures: ShippingFigures) -> ShippingState:
    """What the log says, as a replica tells it. ValueError for a hash that is none."""
    return ShippingState(
        generation=figures.generation,
        node=figures.node,
        manifest_count=figures.manifest_count,
        manifest_hash=bytes.fromhex(figures.manifest_hash),
        period_start_us=figures.period_start_us,
        period_us=figures.period_us,
        announced_end=figures.announced_end,
    )
