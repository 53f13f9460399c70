"""Each bound of the product once, with unit and reason. Relations between them are asserted at import."""

KIB = 1 << 10
MIB = 1 << 20

# --- replication groups -----------------------------------------------------------------------------------

REPLICAS_MAX = 6          # active replicas of a shard; quorums are tabled for 1 to 6
MEMBERS_MAX = 8           # replicas and standbys together: fits the route byte of a prepare
SUPERBLOCK_COPIES = 4     # 2 to open, 3 to confirm: 2 + 3 > 4, so a confirmed update is always seen
TICK_MS = 10              # unit of every timeout of a replica

# --- storage ----------------------------------------------------------------------------------------------

SECTOR_SIZE = 4096        # bytes; unit of torn writes that the format assumes
SEGMENTS_MAX_DEFAULT = 4096   # extents of 23 MiB a shard may come to hold: 40 million records

# --- records ----------------------------------------------------------------------------------------------

BODY_SIZE_MAX = 2048      # bytes of a record's body; longer texts become several records
WINDOW_LENGTH = 64        # results remembered for each device and room: a retry inside it gets the first ack
WINDOW_EVICT_AGE_US = 600 * 1_000_000   # a window younger than 10 minutes is never evicted

# --- nonces -----------------------------------------------------------------------------------------------

NONCE_WINDOW = 1024       # newest nonces of a sender that are still told apart; older ones are refused

# --- edge -------------------------------------------------------------------------------------------------

CLIENT_FRAME_SIZE_MAX = 1 * MIB       # bytes of one frame of a chat client, either encoding
VSR_SESSIONS_PER_EDGE = 4             # requests an edge keeps in flight to a shard
ROOM_NAME_SIZE_MAX = 128              # bytes of UTF-8
SNAPSHOT_LIMIT_MAX = 1000             # records in one page of history

assert MEMBERS_MAX >= REPLICAS_MAX
assert BODY_SIZE_MAX < SECTOR_SIZE
