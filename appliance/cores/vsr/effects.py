"""What a replica wants to happen outside. Each effect is a tuple whose first item is one of these
kinds.

    (SEND, members_mask, header, body, route)  to members, one bit each, never itself; signed once
    (SEND_CLIENT, client, header, body)        to the connection on which it was last heard
    (WRITE, token, address, buffers)           whole sectors; `on_write_done(token)` once durable
    (READ, token, address, length)             `on_read_done(token, data or None)`
    (PUBLISH, log_seq)                            records up to log_seq are committed and can be
    read
    (HALT, code, reason)                          the process must stop
    (MARK, name)                                  a rare path was taken
    (MEMBERS, configuration)      from here on member indexes are meant as in this configuration
"""

SEND, SEND_CLIENT, WRITE, READ, PUBLISH, HALT, MARK, MEMBERS = range(8)
NAMES = ("send", "send_client", "write", "read", "publish", "halt", "mark", "members")
