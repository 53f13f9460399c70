"""Kinds of record, for those who read none: a record is a numpy row, a kind a number."""

# Kinds of record: the low 8 bits of `flags`. No other bit is defined yet; unknown bits are refused.
KIND_MESSAGE, KIND_BLOB, KIND_EDIT, KIND_REDACT, KIND_ROOM_CREATE, KIND_ROOM_POLICY = range(6)
KIND_FEDERATED, KIND_AUDIT, KIND_RETAIN, KIND_SHIPPED, KIND_IMPORTED, KIND_CLOCK = range(6, 12)
# what a user's frame may carry
KINDS_CLIENT = frozenset((KIND_MESSAGE, KIND_ROOM_CREATE, KIND_ROOM_POLICY))
# only in the shard's own room
KINDS_SHARD = frozenset((KIND_AUDIT, KIND_RETAIN, KIND_SHIPPED, KIND_CLOCK))
KINDS_KNOWN = KINDS_CLIENT | KINDS_SHARD | {KIND_FEDERATED, KIND_IMPORTED}
FLAGS_KIND_MASK = 0xFF
