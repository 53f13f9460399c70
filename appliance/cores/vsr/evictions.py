"""Why a primary tells a client that its session has ended."""

(
    EVICT_NO_SESSION,
    EVICT_VERSION_LOW,
    EVICT_VERSION_HIGH,
    EVICT_OPERATION,
    EVICT_BODY,
    EVICT_SIZE,
    EVICT_SESSION,
    EVICT_MEMBER_OLD,
    EVICT_CLOCK_FAR,
) = range(1, 10)
# The request itself is what is wrong: it would end the next session too.
EVICTIONS_LASTING = frozenset(
    (EVICT_VERSION_LOW, EVICT_VERSION_HIGH, EVICT_OPERATION, EVICT_BODY, EVICT_SIZE)
)
EVICTION_REASONS = {
    EVICT_NO_SESSION: "no_session",
    EVICT_VERSION_LOW: "version_too_low",
    EVICT_VERSION_HIGH: "version_too_high",
    EVICT_OPERATION: "invalid_operation",
    EVICT_BODY: "invalid_body",
    EVICT_SIZE: "invalid_body_size",
    EVICT_SESSION: "session_too_low",
    EVICT_MEMBER_OLD: "member_too_old",  # it tells the member's place
    EVICT_CLOCK_FAR: "clock_far",  # it tells the group's time
}
