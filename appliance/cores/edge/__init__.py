"""The edge: chat clients on one side, the shards on the other; frames in, frames out, no I/O.

Theory of operation
    `edge.Edge` is the whole core. What happens outside goes in by its `on_...` methods: a
    connection opened, a frame came, a transport is full, a reply came, records were committed, time
    passed. Then `beat` is called once per wake-up of the event loop; it sends what was collected:

        edge.take_effects()   requests to shards, room look-ups, closings: the driver does them
        edge.take_output()    sessions and the frames to write to them, joined per wake-up

    A sent message becomes a record, packed straight into the batch that a log session is filling.
    An edge has a few of them for each shard, each with at most one request in flight. While it is,
    what arrives is collected; the reply lets the next batch go, once those who were answered had
    the time to come back (`cores/vsr/pace`). An idle log session sends at once. The next one is
    used when the batch of the one before is full. A device stays in one while records of it are
    there, so its order is kept, and a batch is kept until it is answered, so that a lost session
    loses nothing: the rooms recognise what they have seen.

    What is committed is read from the ring that the replica of this node shares, or from sealed
    segments. All live subscriptions of a room stand at the same place, the room's head: one
    encoding for all of them, a list append each. A session whose transport is full makes its
    subscriptions lagging; those are served page by page when it drains, and join again when they
    reach the head. As both happen between two commits, there is neither gap nor duplicate.

        lagging --caught up--> live --transport full--> lagging        either --leave--> closed

Promises
    - An ack is sent only for what a shard's reply confirmed, with that reply's numbers.
    - Events of a room go to a session in order of op, each once.
    - A room is called unknown only when the log said so after it was asked for; but for two ids
      that no client's room can have, zero and the shard's own.
    - Everything is bounded: frames, sends in flight, batches, output, rooms, buckets, lag.
    - Every frame counts against the rates, also one that is refused. For a client that does not
      take what was answered nothing more is made, and one message of its waits.
    - What the newest token allows is what holds, for subscriptions too.
    - No frame ends the process, and none ends a connection but by a listed code.

Rooms of this package, each importing only those above it
    encoding      how frames stand on the wire of a kind of connection
    websocket     the head of a server's frame, and the encodings of WebSockets
    stream        frames on a stream of bytes
    connection    what a transport must offer for a client
    token         who is it, what may he do
    expiries      when the tokens of sessions expire
    admission     rate limits
    patience      how long a connection is put up with whose frames are refused
    log           ring and sealed segments as one history
    catalogue     rooms: name, head, who follows
    session       one connection: state, encoding, output
    lookup        from a room's id to its name and place
    publish       log sessions and batches
    answer        replies to acks and errors
    subscription  fan-out and catch-up
    history       pages of a room
    requests/     what each frame does, a module for each family
    reader        who reads without a conversation
    export        all records of a room, for a signed file
    message_search  where the record lies that has a msg_id
    readers       both, made for who asks
    people        who is in which room, by any edge
    followers     who follows the objects of a room
    object_state  what a client is shown of a room's objects
    objects       frames of topics, pins, reactions, read markers, profiles, presence
    object_requests  which of them are asked of the objects
    federation    messages of rooms that other sites share
    connections   all sessions: how they come, why they must go
    frames        what clients send, in order
    replies       what the log says of records
    edge          all of it, put together: the border
"""
