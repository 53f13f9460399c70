"""Times and numbers of one channel. Those of repair are equal at every participant of a channel."""

from dataclasses import dataclass

from appliance.base import limits
from appliance.formats.causal import bloom


@dataclass(frozen=True, slots=True)
class Parameters:
    """Times in ms. The defaults are those of a stream between two sites."""

    causal_entries: int = 10  # K: newest entries of the log named in each message
    head_entries: int = 50  # entries that nothing names yet, named beside them in a sync message
    owed_entries: int = 100  # what others sent since, named beside them too
    filter: bool = True
    filter_capacity: int = bloom.DEFAULT_GEOMETRY.capacity  # peers in use know this one only
    # a sync message is sent at random within this time
    sync_interval_ms: int = 30_000
    # who received something and says nothing sends one within this time; 0: half of the interval
    sync_reply_ms: int = 0
    resend_ms_min: int = 5_000  # doubled with each attempt
    resend_ms_max: int = 60_000
    resend_batch: int = 32
    resend_pause_ms: int = 10  # between two batches
    resend_attempts_max: int = 0  # 0: no limit
    possible_factor: int = 4  # a possibly acknowledged message waits so much longer
    hits_needed: int = 2  # filters that must contain an id
    false_positive_max: float = 0.01  # a filter with a higher estimate proves nothing
    lost_timeout_ms: int = 600_000
    store: bool = True  # somebody can be asked for messages by id
    store_delay_ms: int = 1_000
    store_backoff_ms_max: int = 60_000
    repair_ms_min: int = 30_000  # T_min
    repair_ms_max: int = 120_000  # T_max
    repair_groups: int = 1
    repair_rounds: int = 5
    repair_requests: int = 3  # in one message
    lead_ms_max: int = 600_000  # by which a foreign timestamp may raise the clock over our own
    verify_ids: bool = False
    # a local message that does not fit the outgoing buffer: refused, or kept for later
    refuse_when_full: bool = False
    outgoing_max: int = limits.CHANNEL_OUTGOING_MAX
    outgoing_size_max: int = limits.CHANNEL_BUFFER_SIZE_MAX
    waiting_max: int = limits.CHANNEL_WAITING_MAX
    waiting_size_max: int = limits.CHANNEL_BUFFER_SIZE_MAX
    wanted_max: int = limits.CHANNEL_WANTED_MAX
    responses_max: int = limits.CHANNEL_REPAIRS_MAX
    log_window: int = limits.CHANNEL_LOG_WINDOW
    senders_max: int = limits.CHANNEL_SENDERS_MAX
    owed_max: int = limits.CHANNEL_OWED_MAX
    heads_max: int = limits.CHANNEL_HEADS_MAX
    lost_max: int = limits.CHANNEL_LOST_MAX

    def __post_init__(self) -> None:
        assert 1 <= self.causal_entries <= 200
        assert 0 < self.resend_ms_min <= self.resend_ms_max
        assert 0 <= self.repair_ms_min < self.repair_ms_max
        assert self.repair_groups >= 1 and self.hits_needed >= 1

    @property
    def geometry(self) -> bloom.Geometry:
        """Of every filter of the channel."""
        return bloom.Geometry(self.filter_capacity, bloom.DEFAULT_GEOMETRY.error_rate)


def stream_profile() -> Parameters:
    """Of rooms between sites of ours, over streams: word of what came goes out soon, and of much
    at once, so that a site that was cut off for long is brought up to date as fast as it can take.
    """
    return Parameters(sync_reply_ms=500, owed_entries=900, resend_batch=512, verify_ids=True)
