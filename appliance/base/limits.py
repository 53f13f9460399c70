"""Every limit of the product: each stands here once, with its unit and its reason.

Where one depends on another an assertion says how, and is checked when this module is imported.
"""

KIB = 1 << 10  # bytes
MIB = 1 << 20  # bytes

JSON_DEPTH_MAX = 200  # nesting that is read: our own texts have less, what walks them stands more

# --- replication groups -------------------------------------------------------------------------

REPLICAS_MAX = 6  # active replicas of a shard; quorums are tabled for 1 to 6
MEMBERS_MAX = 8  # replicas and standbys together: fits the route byte of a prepare
SUPERBLOCK_COPIES = 4
SUPERBLOCK_COPIES_TO_OPEN = 2  # that must agree
# An update counts when so many copies were read back. 2 + 3 > 4: any two copies that agree when a
# volume is opened include one of these.
SUPERBLOCK_COPIES_TO_CONFIRM = SUPERBLOCK_COPIES - SUPERBLOCK_COPIES_TO_OPEN + 1
TICK_MS = 10  # unit of every timeout of a replica

# --- storage ------------------------------------------------------------------------------------

SECTOR_SIZE = 4096  # bytes; unit of torn writes that the format assumes
SEGMENTS_MAX_DEFAULT = 4096  # extents of 23 MiB a shard may come to hold: 40 million records

# --- records ------------------------------------------------------------------------------------

BODY_SIZE_MAX = 2048  # bytes of a record's body; longer texts become several records
# results remembered for each device and room: a retry inside it gets the first ack
WINDOW_LENGTH = 64
# When the table of windows is full, one that was used in the last 10 minutes makes way only for its
# own author, or if he holds more windows than most
WINDOW_EVICT_AGE_US = 600 * 1_000_000
# An author may hold this part of a shard's windows, and create as many rooms: 2,048 in production.
# That is enough for a user with ten devices in two hundred rooms. 64 users who take all they can
# fill the table
WINDOW_SHARES = 64
WINDOW_SHARE_MIN = 8  # windows: where a 64th is less, as in the small geometry
# An author with at most a 32nd of a share, 64 windows, loses one only if it is the oldest of all
WINDOW_FEW = 32
# How far a device's clock, by the times in its messages' ids, may be ahead of the group's. A larger
# value bears with worse clocks, a smaller one leaves less to who dates messages ahead on purpose
WINDOW_AHEAD_US = 60 * 1_000_000
# by which the time in a client's msg_id may lie behind the clock of the node that takes it. What is
# remembered of devices has no age of its own; an outbox that waited for longer is rare
MESSAGE_ID_AGE_US_MAX = 30 * 86_400 * 1_000_000
# and ahead of it: a date that is one off, in the farthest time zone
MESSAGE_ID_AHEAD_US_MAX = 2 * 86_400 * 1_000_000

# --- nonces -------------------------------------------------------------------------------------

# newest nonces of a sender that are still told apart; older ones are refused
NONCE_WINDOW = 1024

# --- I/O of a volume ------------------------------------------------------------------------------

IO_GROUP_SIZE_MAX = 4 * MIB  # bytes an I/O thread writes before it flushes and answers: some ms
IO_STEP_BACK = 256 * KIB  # bytes of one call beside the journal, which waits no longer
IO_SAMPLES = 1000  # newest durable writes whose latency the status reports
LATENCY_AGE_S_MAX = 60  # older ones tell nothing of now
# Segments after the open one that a disk must have room for; with less its replica is short of
# space. More than a group commits until all know of it.
EXTENTS_RESERVED_MIN = 4
EXTENTS_OPEN_MAX = 8  # segment files held open: the open one, the next, some for repair

# --- stores -------------------------------------------------------------------------------------

STORE_KEY_SIZE_MAX = 511  # bytes of a key; what LMDB was built for
STORE_READERS_MAX = 126  # threads and processes that read a store at once

# --- memory of a process --------------------------------------------------------------------------

MEMORY_SLACK_MAX = 4 * MIB  # bytes it may grow by before it gives back what is free
COLLECT_GROWTH = 0.25  # of it: then all garbage is collected, for which everything else waits
COLLECT_SHARE_MAX = 0.01  # of the time that goes to that
COLLECT_AGAIN_S = 60.0  # until one that has not grown, but once held less, collects all again
COLLECT_AGAIN_S_MAX = 960.0  # the same, if that frees nothing, again and again
COLLECT_SHARE_AGAIN_MAX = 0.001  # of the time that goes to that
HOLES_QUIET_S = 5.0  # without much taken or freed, until holes in the heap are given back
SWEEP_BLOCKS_MAX = 40_000  # of small objects beyond the fewest, with which all is collected then
HOLES_AGAIN_S = 15.0  # until they are looked for again, when there were no more
HOLES_POOLS_STEP = 64  # a MiB of them at a time, while everything else waits: 2 ms

# --- links ----------------------------------------------------------------------------------------

LINK_BUFFER_MAX = 16 * MIB  # bytes waiting on one connection; frames beyond are dropped, counted
CONNECTIONS_MAX = 256  # of one replica, authenticated; the next one is closed, counted
HANDSHAKES_MAX = 64  # connections without a certificate yet; beyond, one of them gives way
PEER_ADDRESSES_MAX = 1024  # from which members came; the longest unseen is forgotten
HANDSHAKE_MS_MAX = 5_000  # to show it
DIAL_BACKOFF_MS_MIN, DIAL_BACKOFF_MS_MAX = 20, 500  # between tries, doubled, with jitter
LOCAL_ROOMS_MAX = 4096  # rows of 128 bytes in one answer to an edge of the same node
# The log of a shard of which a node holds no replica, as its edges read it at another node.
REMOTE_ROOMS_MAX = 256  # rows of rooms, with their names, in one answer
REMOTE_SEGMENTS_MAX = 8  # sealed ones that an edge keeps of a shard, 23 MiB of disk each
REMOTE_KEEP_MS = 250  # for which a replica keeps a question about records that are not there yet
REMOTE_SILENT_MS_MAX = 2_000  # for which a replica that says nothing is asked
REMOTE_AGAIN_MS = 500  # for which a segment that was not to be had is not asked for again
CLIENT_ROUTES_MAX = 4096  # clients whose connection is remembered; the oldest is forgotten

# --- streams of objects and federation ------------------------------------------------------------

STREAM_WAITING_MAX = 16 * MIB  # bytes waiting on one stream; one more closes it
STREAMS_MAX = 256  # accepted by one listener; the next is closed, counted
STREAM_DIAL_MS_MIN, STREAM_DIAL_MS_MAX = 50, 5_000  # between tries, doubled, with jitter
SITE_DIAL_MS_MAX = 1_000  # of a node of another site: what it missed waits for that

# --- edge ---------------------------------------------------------------------------------------

CLIENT_FRAME_SIZE_MAX = 1 * MIB  # bytes of one frame of a chat client, either encoding
VSR_SESSIONS_PER_EDGE = 4  # requests an edge keeps in flight to a shard
ROOM_NAME_SIZE_MAX = 128  # bytes of UTF-8
SNAPSHOT_LIMIT_MAX = 1000  # records in one page of history
# bytes waiting for one client: beyond, nothing live is written to it
CLIENT_WRITE_HIGH = 64 * KIB
CLIENT_WRITE_LOW = 16 * KIB  # until no more than this waits
HTTP_HEAD_SIZE_MAX = 16 * KIB  # bytes of the head of a client's first request
HELLO_MS_MAX = 10_000  # from the open connection to a valid hello
SESSION_SENDS_MAX = 4096  # sends of one connection that wait for their acks
SESSION_SUBSCRIPTIONS_MAX = 1024  # rooms that one connection follows
# rooms of which a session remembers its rights; then it forgets all
SESSION_ROOMS_MAX = 4096
# messages in one frame: what is refused is answered one by one
SEND_ITEMS_MAX = 4096
SEND_MESSAGES_MAX = 256  # the same in JSON, where each costs ten times as much
# bytes of a frame before hello, which holds a token and an id: a stranger gets no more memory
STRANGER_FRAME_SIZE_MAX = 8 * KIB
# refused frames of a connection: so many at once, so many a second; beyond, it is not read from,
# and after so many more it is closed. A client that waits as it is told comes near neither
REFUSALS_BURST, REFUSALS_RATE, STRIKES_MAX = 256, 50, 64
HOLD_MS_MAX = 1_000  # a connection that was refused for its rate is not read from for so long
# pages of history made in one wake-up, for all together: a large one takes up to 2 ms, and is the
# last of its wake-up
HISTORY_PAGES, HISTORY_PAGE_LARGE = 2, 32 * KIB
EXPORTS_MAX = 8  # signed files of rooms that an edge makes at a time ...
EXPORTS_OF_USER_MAX = 2  # ... and of these, for one user
EXPORT_RECORDS_MAX = 64  # of such a file that are read at a time
MESSAGE_SEARCHES_MAX = 4  # for a msg_id at an edge at a time: each takes 1 ms of a turn ...
MESSAGE_SEARCHES_OF_USER_MAX = 2  # ... and of these, for one user
# of one search: all of a full shard, a segment for each message that a device may send
MESSAGE_SEARCH_MS_MAX = 60_000
HISTORY_CHARGE_SIZE = 32 * KIB  # bytes of history that are charged as one message
USER_CONNECTIONS_MAX = 2_048  # of one user at one edge; the next hello is refused
# bytes that an edge holds in both directions; beyond, the connection that holds most is closed
CONNECTION_HELD_MAX = 4 * MIB  # for one connection: its output and one frame of the largest size
USER_HELD_MAX = 8 * MIB  # for all connections of one user
EDGE_HELD_MAX = 16 * MIB  # for all, of strangers too
TLS_RECORD_SIZE = 16 * KIB  # bytes of the largest record of TLS
HELD_MIN = 4 * KIB  # a connection that holds less is not looked at
# bytes of one wake-up for one connection: beyond, subscriptions turn lagging
SESSION_OUT_MAX = 512 * KIB
# batches that collect behind the one in flight; then sends are answered busy
LOG_SESSION_BATCHES_MAX = 5
EDGE_ROOMS_MAX = 131_072  # rooms an edge remembers: all of a shard
# sealed segments mapped by one edge: 23 MiB of address space each
SEGMENTS_MAPPED_MAX = 256
# the same by whoever reads a log from end to end: pages that it has read stay resident with it for
# as long as they are mapped
SEGMENTS_READ_MAX = 8
# connections that have said no hello and are served: TLS, first request, plain HTTP; of an address
# as many as may come while one says hello, and no more than that
STRANGERS_MAX = 256
STRANGER_STEP_MS = 2_000  # without a step towards hello, then one who waits is served instead
# connections of which nothing came, and others that wait until they are served, of all addresses:
# a descriptor each. As many as come at once from one address, by the default of its rate
STRANGERS_SILENT_MAX = STRANGERS_WAITING_MAX = 1_024
# connections beyond those that a node has room for which are told so at a time, and a second: TLS
# and an answer each, 2 ms; all others just end
TURNED_AWAY_MAX = 32
TURNED_AWAY_RATE = 50  # a second
TURNED_AWAY_MS_MAX = 3_000  # that each step towards the answer may take
# descriptors of an edge that no client gets: mapped segments, who is turned away, and files,
# listeners and links to replicas
DESCRIPTORS_RESERVED = SEGMENTS_MAPPED_MAX + TURNED_AWAY_MAX + 224
PROXY_HEADER_SIZE_MAX = 4 * KIB  # by which a known proxy names its client; most have under 100
ACCEPT_BURST_SECONDS = 4  # of the rate at which an address may connect may come at once
ACCEPTS_PER_TURN = 16  # connections accepted in one turn of the loop: 1 ms
# frames of one connection, and of all, that are handled in one turn of the loop; each 8 KiB of a
# frame count as one more. All together are 5 to 10 ms
TURN_COST_MAX, TURN_COST_ALL_MAX = 16, 256
TURN_COST_GREEDY_MAX = 16  # of these, for all who had more to say than one turn takes: under 1 ms
TURN_COST_SIZE = 8 * KIB  # bytes of a frame that cost as much as a frame
HTTP_MS_MAX = 10_000  # for a request of plain HTTP: the pause before, head, body, answer taken
HTTP_REQUESTS_MAX = 100  # on one connection of plain HTTP; then it is closed
# conversations in plain HTTP: bytes of one answer, unless a frame is larger; how long a poll waits
PLAIN_BATCH_SIZE, PLAIN_POLL_S = 256 * KIB, 25.0
PLAIN_SILENT_S = 30.0  # between two requests that read; then the conversation is over
SEGMENTS_VERIFIED_MAX = 64  # sealed segments whose footers are kept in memory, checked
LEAVES_KEPT_MAX = 24  # leaves of sealed segments in memory, of those that read them: 1 MiB each
SEGMENTS_SUMMED_MAX = 192  # of which the CRC of each record is kept, 80 KB each
SEGMENT_MEND_MS_MAX = 1000  # a reader of a broken segment waits so long for a peer's copy
SEGMENTS_REPORTED_MAX = 64  # broken ones that readers have found and that wait to be mended
SPREAD_MS_OF_CLIENT, SPREAD_MS_MAX = 2, 10_000  # of those whom a node sends to another one
ROOM_WAIT_MS_MAX = 500  # a room that was just created elsewhere is waited for
REPLICA_BEHIND_OPS = 64  # a replica further behind is not asked for rooms and history
# members are heard of twice a second: a node that hears no quorum for longer is cut off
QUORUM_SILENT_MS_MAX = 700
EVENT_FRAME_SIZE_MAX = 256 * KIB  # bytes of one frame of events, joined
CHUNK_FRAME_SIZE_MAX = 128 * KIB  # bytes of one page of history: 1 to 2 ms, of everybody's time
CATCH_UP_RECORDS = 256  # records read at once for a lagging subscription: 1 to 2 ms
CATCH_UP_PAGES = 8  # of these in one wake-up, for all together
# a connection that took nothing for so long is closed with a cursor
LAG_MS_MAX = 300_000
# by which the newest time in a log may be ahead of the clock; more is an alarm
LOG_AHEAD_US_MAX = 5_000_000
# by which the time of a correction may differ from what the group's clocks say
CORRECTION_OFF_US_MAX = 300_000_000
CLOCK_SKEW_US = 60_000_000  # by which an issuer's clock may be ahead of a node's
TOKEN_LIFE_S_DEFAULT = (
    86_400  # a token that is valid for longer is refused, unless a node allows it
)
DRAIN_MS_MAX = 2_000  # that an edge which stops waits for answers to what it took
TOKEN_SIZE_MAX = 8 * KIB  # bytes of a token
KEY_SET_SIZE_MAX = 1 * MIB  # bytes of the issuer's jwks.json
ROOM_NAMES_MAX = 1 << 18  # stated anew, of rooms whose first record is dropped, that an edge holds
REVOCATIONS_MAX, REVOCATIONS_PAGE = 10_000, 64  # of tokens: known to an edge; records read a tick
TOKEN_RIGHTS_MAX = 64  # patterns in a token
BUCKETS_MAX = 100_000  # of each kind of rate limit; the longest unused are forgotten
RATE_BURST_MS = 2_000  # of a rate may come at once
RATE_UNLIMITED = 10_000_000  # a second: this rate or more switches a limit off

# --- QUIC of chat clients -------------------------------------------------------------------------

QUIC_WINDOW = 1 * MIB  # bytes that a client may send ahead of us on one connection
QUIC_STREAM_WINDOW = 512 * KIB  # of these, on one stream: a frame of the largest size is two
QUIC_STREAMS_MAX = 32  # requests and sessions at once on one connection
QUIC_UNI_STREAMS_MAX = 8  # control, two of QPACK; a browser tries another or two
QUIC_PIECES_MAX = 256  # in which a stream may come while something before them is missing
QUIC_CRYPTO_WAITING_MAX = 32 * KIB  # bytes of a handshake that came before what precedes them
QUIC_IDS_MAX = 4  # identifiers of a connection that are good at once
QUIC_IDS_ISSUED_MAX = 4096  # in the life of a connection: one for each change of its address
QUIC_DATAGRAMS_MAX = 64  # unreliable ones that wait on one connection; the next is dropped
QUIC_DATAGRAM_FRAME_SIZE_MAX = 1200  # bytes of one that we take
# bytes of datagrams that are tried on a path which is asked for many: Ethernet, jumbo frames, the
# machine's own loopback; all paths bear 1200
QUIC_PATH_SIZES = (1_452, 8_952, 16 * KIB)
QUIC_RETRY_S_MAX = 30  # from a Retry to the Initial that brings its token
QUIC_HANDSHAKES_RATE = 100  # a second of one process, each 4 ms; the next Initials are dropped
QUIC_HANDSHAKES_BURST = 50  # of them at once
QUIC_ANSWERS_RATE = 2_000  # Retry, version and reset packets a second of one process: 0.05 ms each
QUIC_DATAGRAMS_PER_TURN = 32  # read in one turn of the loop: 1 to 5 ms
QUIC_IDLE_S = 45  # of silence end a connection; who has a session is asked every 20 s
QUIC_SESSIONS_MAX = 8  # WebSockets, or WebTransport sessions, in one connection
QUIC_WRITE_MAX = 2 * MIB  # bytes that wait on one connection; its streams write no more
# Of a certificate that a page accepts by its digest; browsers take none that is good for longer.
QUIC_CERTIFICATE_LIFE_S = 14 * 86_400

assert QUIC_WINDOW + QUIC_WRITE_MAX + QUIC_STREAMS_MAX * HTTP_HEAD_SIZE_MAX < CONNECTION_HELD_MAX

# --- federation -----------------------------------------------------------------------------------

CAUSAL_MESSAGE_SIZE_MAX = 1 * MIB + 64 * KIB  # bytes of one encoded message of another site
CAUSAL_ENTRIES_MAX = 1024  # of a causal history; the widest peer sends 200
CAUSAL_REPAIRS_MAX = 64  # requests in one message; peers send 3
CAUSAL_ID_SIZE_MAX = 256  # bytes of an id of message, sender or channel
CAUSAL_HINT_SIZE_MAX = 1 * KIB  # bytes of a retrieval hint
CAUSAL_FILTER_SIZE_MAX = 64 * KIB  # bytes; the filter in use has 18,752
CAUSAL_FIELDS_UNKNOWN_MAX = 16  # fields of a later version in one message, or in one entry
# a lamport timestamp from here on is refused: the next ones must fit 64 bits everywhere
CAUSAL_LAMPORT_MAX = 1 << 63
FEDERATED_AUTHOR_SIZE_MAX = 256  # bytes of an author's name
SHARING_SITES_MAX = 8  # sites that share one room
SITE_NAME_SIZE_MAX = 30  # bytes of the name of a site that shares rooms
FEDERATED_PARTS_MAX = 512  # records that one message of another site may be split into
FEDERATED_CONTENT_SIZE_MAX = 4 * KIB  # bytes of a body with its fields and signature
LINK_FRAME_SIZE_MAX = CAUSAL_MESSAGE_SIZE_MAX + KIB  # bytes of one frame between sites
LINK_WANT_MAX = 64  # ids asked for in one frame
FEDERATION_SITES_MAX = 32  # other sites that one site knows
INVITATION_SIZE_MAX = 256 * KIB  # letters of a code that invites to a site or a room
FEDERATED_APPEND_MAX = 256  # messages of other sites in one request to the log
FEDERATED_DUE_MAX = 1_000  # of one room, that wait for the log; then links of streams wait too
# records after which a process is told of commits though none of them crosses to other sites
LOCAL_COMMITTED_RECORDS = 4096
FEDERATED_READ_MAX = 256  # records that a carrying node takes together from its site's log
# records, of whatever rooms, behind which a carrying node keeps how far it has read: a kill has it
# read no more of them again
FEDERATED_KEPT_RECORDS = 65_536
FEDERATED_ROWS_MAX = 10_000  # of one channel, that wait to be flushed while the log is read again
LINK_CHANNELS_MAX = 4096  # shared rooms in a hello
LINK_DATAGRAM_SIZE_MAX = 1100  # bytes of a frame that goes as a datagram; larger: the stream
LINK_DATAGRAMS_MAX = 512  # waiting on one link; the next is dropped, counted
LINK_STREAM_BACKLOG_MAX = 4 * MIB  # bytes waiting on a link's stream; the next frame is dropped
LINK_WINDOW = 4 * MIB  # bytes that another site may send ahead of us on one link
LINK_STREAM_WINDOW = 2 * MIB  # of these, on its stream
LINK_PIECES_MAX = 2048  # in which it may come: a full window of packets, every second one missing
# from the first datagram to a proof of who dials. In ten seconds none came about over a way that
# loses a third and takes 4 s to answer
LINK_PROOF_S_MAX = 30.0
LINK_IDLE_S = 4.0  # of silence end a link; it is dialled again
LINK_PING_S = 0.5  # so often a link shows that it lives
LINKS_MAX = 256  # QUIC connections of one port; the next is refused, counted
CHANNEL_OUTGOING_MAX = 10_000  # messages that nobody acknowledged; more wait in the store
CHANNEL_WAITING_MAX = 10_000  # messages that wait for others; the newest leaves, a quarter a sender
CHANNEL_BUFFER_SIZE_MAX = 64 * MIB  # bytes of each of these two
CHANNEL_WANTED_MAX = 10_000  # ids looked for; the newest that nothing waits for leaves
CHANNEL_REPAIRS_MAX = 1_000  # promised repeats; the latest leaves
CHANNEL_LOG_WINDOW = 50_000  # entries in memory; older ones are in the store
CHANNEL_SENDERS_MAX = 4_096  # participants heard of; the one silent for longest is forgotten
CHANNEL_OWED_MAX = 10_000  # messages whose senders wait for word; the oldest is forgotten
CHANNEL_HEADS_MAX = 10_000  # entries that nothing names yet; the oldest is forgotten
CHANNEL_STORE_SIZE_MAX = 64 * 1024 * MIB  # bytes a channel's store may grow to
CHANNEL_TEXT_KEPT_MAX = 256  # bytes of a foreign text kept beside the site's log, which has it too
CHANNEL_LOST_MAX = 10_000  # ids delivered around; the oldest is forgotten

# --- farm -----------------------------------------------------------------------------------------

FARM_ENTRIES_SIZE_MAX = 16 * MIB  # bytes of all entries in one request
FARM_ENTRIES_MAX = 4096  # entries in one request
FARM_VALUE_SIZE_MAX = 1 * MIB  # bytes of one Application value
FARM_PACK_SIZE_MAX = 64 * MIB  # bytes of a LogPack when it is unpacked
FARM_SNAPSHOT_SIZE_MAX = 1024 * MIB  # bytes of a whole snapshot
FARM_BLOCK_SIZE_MAX = 16 * MIB  # bytes of one block of a snapshot
FARM_SERVERS_MAX = 64  # in a Configuration that we make; a leader's may hold more
FARM_VOTERS_MAX = 15  # of these; all are voters on the wire
FARM_ENDPOINT_SIZE_MAX = 255  # bytes of ASCII
FARM_ID_MAX = (1 << 31) - 1  # of a server: a signed integer of 32 bits on the wire
FARM_TERM_MAX = 1 << 62  # of a term and of an index: far from the sign of 64 bits
FARM_DOCUMENT_SIZE_MAX = 64 * KIB  # bytes of a document that a node posts
FARM_DOCUMENT_DEPTH_MAX = 2048  # brackets in one, in texts too
FARM_ENDPOINTS_MAX = 256  # service endpoints of one node
FARM_EXCLUSIONS_MAX = 1024  # identities an administrator keeps out
FARM_GUESTS_MAX = 1024  # members that ever came by code
FARM_GUEST_TEXT_MAX = 1024  # characters of each thing that is kept of one
FARM_PERIOD_MS_MIN, FARM_PERIOD_MS_MAX = 200, 3_600_000  # between two posts of a node
FARM_SHARDS_MAX = 1024  # shards whose shipper and placement the farm keeps
FARM_DIRECTORY_SIZE_MAX = 4 * MIB  # bytes of a signed directory
FARM_HEAD_SIZE_MAX = 8 * KIB  # bytes of the head of a login request or its answer
FARM_HEAD_LINES_MAX = 64  # lines of it
FARM_HANDSHAKE_MS_MAX = 10_000  # from the open connection to the login
FARM_STRANGERS_MAX = 64  # connections that are not logged in yet; the newest is refused
FARM_STRANGERS_PER_ADDRESS_MAX = 8  # of these from one address
FARM_FAILURES_PER_MINUTE_MAX = 10  # failed logins of an address before its answers are delayed
FARM_FAILURE_DELAY_MS_MAX = 5_000  # of the answer to a failed login
FARM_ADDRESSES_MAX = 4096  # whose failures are remembered; the oldest is forgotten
FARM_CONNECTIONS_PER_USER_MAX = 8  # beyond, the oldest idle one is closed
FARM_READ_AHEAD_MAX = 16  # requests of a connection that wait; then it is not read from
FARM_NONCE_AGE_MS_MAX = 7_200_000  # a server takes its nonces for 2 hours
FARM_CHALLENGE_AGE_MS_MAX = 3_600_000  # a client uses a challenge again for 1 hour
FARM_NONCE_COUNTS_MAX = 1024  # newest counts of a nonce that are told apart
FARM_NONCES_MAX = 4096  # nonces in use; those as old as a forgotten one are stale
FARM_RETRY_MS_MIN, FARM_RETRY_MS_MAX = 30_000, 600_000  # after a refused login, doubled
FARM_TERM_JUMP_MAX = 1 << 40  # in one message: more can only be meant to exhaust terms

# --- console ------------------------------------------------------------------------------------

OPERATOR_CONNECTIONS_MAX = 128  # to the console; beyond, the oldest of who holds most gives way
OPERATOR_CONNECTIONS_PER_ADDRESS_MAX = 32  # several pages, each with its stream
OPERATOR_REQUEST_S = 10.0  # for a handshake, and for a whole request; then it is closed
OPERATOR_TAKE_S = 10.0  # in which a page must take what is sent to it
SIGN_INS_WAITING_MAX = 16  # secrets of strangers that wait to be judged: under a second of work

# --- archives that are imported -----------------------------------------------------------------

# bytes of one line; a chat line or header is a thousandth of it
ARCHIVE_LINE_SIZE_MAX = 1 * MIB
# bytes of one message with its attachments, or of one day's file
ARCHIVE_ENTRY_SIZE_MAX = 32 * MIB
ARCHIVE_TEXT_SIZE_MAX = 1 * MIB  # bytes of UTF-8 of one message's text: 512 records
ARCHIVE_MEMBERS_MAX = 200_000  # files in a zip: a channel's day is one
ARCHIVE_PARTS_MAX = 1000  # parts of one mail
ARCHIVE_CONTAINERS_MAX = 100  # of parts in one mail: each line is compared with each border
# bytes of a Content-Type or Content-Disposition: Python parses them in the square of their size
ARCHIVE_DESCRIPTION_SIZE_MAX = 2 * KIB
ARCHIVE_HEADER_SIZE_MAX = 4 * KIB  # characters of a mail's header that are read
ARCHIVE_RATIO_MAX = 100  # what a zip unpacks to, as a multiple of its size; chat takes 5 to 20
ARCHIVE_UNPACKED_SIZE_MAX = 64 * 1024 * MIB  # bytes a zip unpacks to in all
# bytes of an author's name as an archive shows it
IMPORTED_AUTHOR_SIZE_MAX = 256
# messages: their ids are held while an archive is imported
ARCHIVE_ENTRIES_MAX = 5_000_000
ARCHIVE_ROOMS_MAX = 100_000  # conversations that become rooms

# --- objects ------------------------------------------------------------------------------------

# sources in one version vector: sites and nodes, those that left too
VECTOR_ENTRIES_MAX = 65_536
REVISION_MAX = 1 << 60  # of a value: read markers carry an op, presence milliseconds
FIELD_SIZE_MAX = 16 * MIB  # bytes of one field's state
# bytes of one packet: the Go implementation makes diffs of 100,000,000 bytes and one state
PACKET_SIZE_MAX = 120 * MIB
EDIT_OBJECTS_MAX = 4096  # that one packet of another replica edits
DIFF_PACKET_SIZE = 256 * KIB  # bytes after which a diff is continued in another packet
DIFF_ROWS = 4096  # fields of a diff that are read at once
# bytes of the diffs on their way in one session, held in memory until their end
SYNC_POINT_SIZE_MAX = 512 * MIB
SYNC_POINTS_MAX = 64  # diffs on their way in one session, those passed on included
SYNC_POINT_MS_MAX = 600_000  # since the last packet of a peer's own diff; then its session ends
# while diffs that a peer passes on are on their way, one at least; then its session ends
PASSED_DIFF_MS_MAX = 60_000
HELD_SIZE_MAX = 16 * MIB  # bytes of a session's changes that wait for a diff; then it ends
SESSION_QUEUE_MAX = 16 * MIB  # bytes of changes that wait for one peer; then its session ends
TRACES_MAX = 4096  # diffs remembered, so that none is passed on twice
BLOCK_VECTORS_CACHED_MAX = 4096  # vectors of blocks held in memory
SNAPSHOTS_MIB = 256  # of segments' snapshots that a node keeps by default
SNAPSHOT_FILES_MAX = 1000  # of a shard, however small its segments are
SNAPSHOT_RATE_MAX = 4_000_000  # bytes a second at which they are written: nobody waits for them
OBJECTS_MIB = 4096  # that a node's objects may grow to by default; the file grows as they do
SITE_LINKS_MAX = 64  # sites whose objects a node is linked to
DOOR_CONNECTIONS_MAX = 64  # to the socket by which a node asks its objects
REACTIONS_MAX = 1000  # on one message
REACTION_SIZE_MAX = 64  # bytes of one emoji
PINS_MAX = 200  # in one room
# keys that a batch changes and that are told one by one; more are told as one: ask anew
OBJECT_CHANGES_MAX = 4096
REACTED_PAGE = 500  # messages whose reactions are told at once
PEOPLE_MAX = 200  # of one room and edge that are told to be there
DOOR_REQUESTS_MAX = 1024  # of one process of a node that are not answered; then it is not read
DOOR_WAITING_MAX = 8 * MIB  # bytes for a follower of the objects; then it must come again
LIVE_MESSAGE_SIZE_MAX = 64 * KIB  # bytes of who types, who is there
LIVE_WAITING_MAX = 256 * KIB  # bytes of them for one peer; what comes then is dropped
LIVE_SEEN_MAX = 4096  # of them remembered, so that none goes round
POSITIONS_TOLD_MAX = 150  # places of messages of a shared room in one of them
POSITIONS_ASKED_MAX = 1000  # messages of whose places a client may ask at once
POSITIONS_FRESH_MAX = 1000  # of one room that are told unasked at once; older ones are asked for
LIVE_HOPS_MAX = 8  # nodes and sites that one goes through
PRESENCE_REFRESH_MS = 10_000  # who is there is said again
PRESENCE_MS_MAX = 30_000  # and forgotten when it is not
PRESENCE_ROOMS_MAX = 20_000  # rooms of which an edge knows who is there
LAST_SEEN_PAUSE_MS = 60_000  # between two times that it is stored when a user was seen
OBJECT_REQUESTS_MAX = 4096  # of all clients of an edge that its objects have not answered
OBJECT_TEXT_SIZE_MAX = 4096  # bytes of a topic, a description, a name
PICTURE_SIDE_MAX = 128  # pixels of a side of a person's picture, in a profile
TEXT_DEPTH_MAX = 64  # brackets within brackets in the notation of values

assert MEMBERS_MAX >= REPLICAS_MAX
assert BODY_SIZE_MAX < SECTOR_SIZE
assert FARM_CHALLENGE_AGE_MS_MAX < FARM_NONCE_AGE_MS_MAX
assert FARM_VALUE_SIZE_MAX <= FARM_ENTRIES_SIZE_MAX
assert FARM_BLOCK_SIZE_MAX <= FARM_ENTRIES_SIZE_MAX
assert FARM_VOTERS_MAX <= FARM_SERVERS_MAX
