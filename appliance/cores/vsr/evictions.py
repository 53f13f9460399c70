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
    1: "no_session",
    2: "version_too_low",
    3: "version_too_high",
    4: "invalid_operation",
    5: "invalid_body",
    6: "invalid_body_size",
    7: "session_too_low",
    8: "member_too_old",  # it tells the member's place
    9: "clock_far",  # it tells the group's time
}
