"""With which code a WebSocket ends after an error: `docs/client-protocol.md`, "Closings"."""

from appliance.base.errors import InputError
from appliance.formats.client_errors import (
    Closing,
    ConnectionsTooMany,
    EncodingMismatch,
    FrameTooLarge,
    HeldTooMuch,
    HelloLate,
    HelloRequired,
    RateLimited,
    RefusedTooOften,
    SubscriptionTooSlow,
    TokenExpired,
    TokenInvalid,
    TokenKeyUnknown,
    TokenNotYetValid,
)

CLOSE_CODES: dict[type[InputError], int] = {
    Closing: 1001,
    EncodingMismatch: 1003,
    FrameTooLarge: 1009,
    RateLimited: 1013,
    ConnectionsTooMany: 1013,
    HelloRequired: 4001,
    HelloLate: 4001,
    TokenInvalid: 4003,
    TokenKeyUnknown: 4003,
    TokenExpired: 4003,
    TokenNotYetValid: 4003,
    SubscriptionTooSlow: 4008,
    HeldTooMuch: 4013,
    RefusedTooOften: 4029,
}
