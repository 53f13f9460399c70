"""What a room policy says in bits, for those who read none."""

POLICY_CLOSED = 1  # the room takes policies, nothing else
POLICY_SHARED = 2  # other sites take part; who they are follows
