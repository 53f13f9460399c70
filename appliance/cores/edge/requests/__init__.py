"""What each frame of a client does: families of frames, a module each, with a table of handlers.

A handler returns False when the frame must wait, for a room look-up or for a segment that is being
mended: the session's later frames wait behind it, so that the order of a device's messages is
kept. What is wrong with a frame is raised as an InputError, and answered in one place.

    clock       the time of the edge, set on each tick
    charges     every frame counts against the rates; errors are counted
    access      the room of a frame: looked up, waited for, and what the token allows there
    sign_in     hello, refresh_token, ping
    sending     send_message, create_room
    reading     subscribe_room, unsubscribe_room, snapshot_request
    listing     list_rooms
    finding     find_message
    closing     close_room, room_state_request
    dispatch    the table of all of them

The frames of objects are a family of their own, in `objects` beside this package. A new family is a
class with `handlers`, and a row where `edge.Edge` puts the families together.
"""
