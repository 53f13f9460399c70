"""What a replica wants to happen outside. Each effect is a tuple whose first item is one of these
kinds.

    (SEND, replica_ids, header, body, route)   to these members, never itself; signed once
    (SEND_CLIENT, client, header, body)        to the connection on which it was last heard
    (WRITE, token, address, buffers)           whole sectors; `on_write_done(token)` once durable
    (READ, token, address, length)             `on_read_done(token, data or None)`
    (PUBLISH, log_seq)                            records up to log_seq are committed and can be
    read
    (HALT, code, reason)                          the process must stop
    (MARK, name)                                  a rare path was taken

Members are named by their replica ids, here and where messages come in. Their places in the group
change with its configuration and are the core's alone.
"""

Buffers = list[bytes | memoryview]  # of a write, one after the other

SEND, SEND_CLIENT, WRITE, READ, PUBLISH, HALT, MARK = range(7)
NAMES = ("send", "send_client", "write", "read", "publish", "halt", "mark")
