"""The state machine of a shard: what the replicated log means for its rooms.

Purpose. The log hands every member the same batches of records in the same order; `Rooms.commit`
validates each record, gives it its place and answers with one result each. Nothing here reads a
clock, a random number or a disk, so equal histories give equal bytes: tables, segments, results.

Idea. A record that is accepted gets two numbers without gaps, `seq` in its room and `log_seq` in
the shard, and names the hash of the room's record before. It is copied once, into the shared ring,
from which edges read the newest records and from which the disk is written. A record that is
refused leaves no trace: a retry is validated again.

    batch --> validate (window, policy, storage, limits) --> OpenSegment.append --> result
                |             |                              |
              Windows      RoomTable, Retention            ring, leaves, footer --> SegmentWrite

Validating, in this order; the first that applies answers:

    room_unknown        no such room, and the record does not create it
    forbidden           the window of this device and room belongs to another author
    duplicate           the number is among the newest 64: the first answer's log_seq
    duplicate_expired   it is older, or retention has freed the record
    sequence_gap        it is not the next number; seq says which is expected
    forbidden           the room does not take this record (kind, policy, body), or a shipped
                        record does not fit the state of shipping (module `shipping`), or what
                        another site made does not fit room or carrier (module `carrying`)
    duplicate           room_create of a room that exists: log_seq of the record that created it
    msg_id_taken        a record of the open segment has this id, of another user or in another
                        room; only in prepares that bind ids, as groups make them from when all
                        members' programs know them
    storage_full        two extents or fewer are left, or the prepare is a sparing one, since the
                        replicas' disks are about to be full; audit, retain and shipped may enter
    limit               no row for a new room, or no window old enough to give its row to a new one

States. The open segment fills leaf by leaf; when it is full its footer is made inside the same
apply and the next record begins the next segment in the other buffer of the ring, once what that
buffer held is durable (`can_commit`). A checkpoint names the state: tables, leaves so far, id of
the newest sealed segment; `restore` verifies all of it and the chains inside the open segment.

`rebuild` makes the state anew from the records of a log, for a cluster that takes another one's
place: by the same rules, so each record gets the bytes that it had.

Promises. A (client_id, room, client_seq) is accepted at most once while its window lives; a window
is evicted only for a newer one and never within ten minutes of its newest record. Segments that a
retain record dropped are overwritten only two checkpoints later. `docs/formats.md` has the bytes.
"""
