"""Links between nodes and sockets within one: bytes in, checked messages out.

    between nodes    TCP, mutual TLS 1.3, every frame signed        link.py, tls.py
    within a node    Unix socket, peer credentials, unsigned        local.py, local_peer.py
                     questions, each answered by its number         questions.py, ask.py,
                                                                    status.py, objects_link.py
    other sites      QUIC, where a link loses packets               quic_links/
    both             header 128 | body | signature 64               framing.py, checks.py
    chat clients     WebSocket and pages on one port                websocket.py, pages.py
                     HTTP/3, beside it on UDP                        quic/
                     who comes in, and may                           accepting.py, entrance.py
                     how much at a time, from where                 turns.py, origin.py
                     who waits, and for whom a proxy speaks         strangers.py, proxies.py

**Directions.** A replica dials every other member of its shard and only sends there; what it
receives arrives on connections that others opened. An edge dials every replica and both sends and
receives on that connection.

**Who is there.** The certificates of the site's nodes are the only trust anchors, each for itself.
After the handshake the key in the peer's certificate must be that of a node (of the very node that
was dialled); this decides which members may speak on the connection and which key verifies their
frames.

**Checks on receipt**, in this order; the first that fails drops the message and counts its name:

    magic  version  length  cluster  shard  command
    sender  checksum  signature  nonce  body_digest  header_digest

After a wrong magic, version or length the stream cannot be followed and the connection is closed;
otherwise it goes on. Within a node checksum, signature and nonce are skipped: the kernel says who
speaks.

**Nonces.** A sender numbers its frames, over all its connections; a receiver lets each number
through once, in any order within the newest 1,024, and refuses older ones. A broadcast is framed
and signed once.

**Bounds.** A connection that has not shown a certificate is given little time and memory; what
waits to be sent is bounded, and frames beyond are dropped and counted: every protocol above repeats
what matters.
"""
