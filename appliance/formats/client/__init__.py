"""Frames between a chat client and an edge: each is one class, its fields written once.

JSON is one object a frame, read and written by msgspec. The binary layout follows from the same
class: its fields in order, little-endian, without padding, what varies in size behind its size.

    binary frame:  code u8 | version u8 | count u16 | ...
        send_message, message_ack, message_event    count times the whole frame
        snapshot_chunk, rooms, object_state, federation_event
                                                   the frame's own fields, then count list items
        all others                                  count = 1

Ids are u128: UUID text in JSON, 16 bytes in records and binary frames. An absent integer is all
ones in binary, an absent id is zero, an absent text empty. `docs/client-protocol.md` tells the
meaning.

    address         where clients reach an edge
    fields          kinds of fields: how each stands in JSON and in binary
    frame           what all frames are; the binary layout of a class; both encodings, written
    sign_in         hello, welcome, refresh_token
    connection      ping, pong, node_state, next_node, error
    sending         send_message, message_ack; the hot ones
    acks            message_ack as columns
    subscribing     subscribe_room, subscribed, message_event, unsubscribe_room, unsubscribed
    history         snapshot_request, snapshot_chunk
    rooms           create_room, room, list_rooms, rooms
    objects         topic, pin, reaction, read_marker, profile, presence, typing; object_ack,
                    object_event, object_state, object_request
    federation      federation_event, federation_request: messages of shared rooms
    records         committed records as events and as messages of a page
    unfolding       imported messages as clients show them
    table           every frame there is, a row each: its code, and who sends it
    stream          frames on a stream of bytes, each behind its size
    parse           both encodings, read

A new frame is a class in the module of its family, or in a module of its own, and a row in `table`.
"""
