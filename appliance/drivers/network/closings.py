"""How conversations end after an error, by what carries them: `docs/client-protocol.md`, Closings.

WebSockets and sessions of WebTransport end with one and the same code.
"""

from appliance.base.errors import InputError
from appliance.formats.client_errors import (
    Closing,
    ConnectionsTooMany,
    EncodingMismatch,
    FrameTooLarge,
    GoElsewhere,
    HeldTooMuch,
    HelloLate,
    HelloRequired,
    NodeFull,
    RateLimited,
    RefusedTooOften,
    SubscriptionTooSlow,
    TokenExpired,
    TokenInvalid,
    TokenKeyUnknown,
    TokenNotYetValid,
    TokenRevoked,
)

CLOSE_CODES: dict[type[InputError], int] = {
    Closing: 1001,
    GoElsewhere: 1001,
    EncodingMismatch: 1003,
    FrameTooLarge: 1009,
    RateLimited: 1013,
    ConnectionsTooMany: 1013,
    NodeFull: 1013,
    HelloRequired: 4001,
    HelloLate: 4001,
    TokenInvalid: 4003,
    TokenKeyUnknown: 4003,
    TokenExpired: 4003,
    TokenNotYetValid: 4003,
    TokenRevoked: 4003,
    SubscriptionTooSlow: 4008,
    HeldTooMuch: 4013,
    RefusedTooOften: 4029,
}

# of the answer to a request that would have opened a conversation in plain HTTP
HTTP_STATUSES: dict[type[InputError], int] = {
    Closing: 503,
    GoElsewhere: 503,
    EncodingMismatch: 415,
    FrameTooLarge: 413,
    RateLimited: 429,
    ConnectionsTooMany: 503,
    NodeFull: 503,
    HelloRequired: 401,
    HelloLate: 408,
    TokenInvalid: 401,
    TokenKeyUnknown: 401,
    TokenExpired: 401,
    TokenNotYetValid: 401,
    TokenRevoked: 401,
    SubscriptionTooSlow: 408,
    HeldTooMuch: 429,
    RefusedTooOften: 429,
}
