"""The farm's consensus: Raft on the frames of JRaft, after an HTTP Digest login; no I/O.

Theory of operation
    Two halves that know nothing of each other.

    **Login** opens a connection. `http_head` reads and writes heads, `digest` computes, `nonces`
    remembers what was used, `login` is the server's side and `dial` the client's. Both take bytes,
    the time and random bytes as arguments, and answer what to send. After the 101 the first byte is
    that of a Raft request; nothing of the login is heard again.

Sources
    RFC 2617 and 7616 (Digest), RFC 6455 (accept key), the Garlic Farm proposal, and the behaviour
    of JRaft; docs/farm.md has the rules in full.
"""
