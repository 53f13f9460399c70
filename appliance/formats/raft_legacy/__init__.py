"""The frames of the farm: those of JRaft, a Raft server in Java, byte for byte.

A farm connection carries requests one way and one response for each the other way, in order. All
integers are big-endian and signed. Layouts, with real bytes, are in docs/farm.md.

    frame           request (45 bytes, then entries), entry (13, then a value), response (26)
    configuration   the servers of a farm, as a value; one server, as a value; endpoints
    log_pack        many entries as one gzip member, with absolute starts
    snapshot_block  a piece of a snapshot, as a value

Decoding checks every size and range before it allocates, and raises `FarmFrameError` with a word
for the counters. The names of fields are those of the Raft core; the names on the wire stand beside
them and go no further than this package.
"""
