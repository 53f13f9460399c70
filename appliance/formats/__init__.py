"""Floor 1: every byte layout, once. Little-endian, no implicit padding, reserved bytes zero and
checked.

    geometry       sizes and offsets of a shard's data file, and the arithmetic of checkpoints
    envelope       header of 128 bytes, frame, commands, digests
    session        session block of requests, prepares and replies; results
    record         2240 bytes: one chat message or event
    record_kind    what kinds of record there are
    superblock     root of a replica's durable state, in four copies
    checkpoint     manifest and rows of the state tables
    segment        10,000 committed records, sealed by a footer
    snapshot       signed export of a segment or a room
    site_view      who belongs to the site now: its file, and what its groups report
    status/        what each role says of itself
    webhdfs        what an HDFS answers over HTTP; webhdfs_call: what it is asked, and when again
    client/        frames between a chat client and an edge, binary and JSON
"""
