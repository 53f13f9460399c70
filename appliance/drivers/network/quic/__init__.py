"""QUIC on the client port: HTTP/3, WebSockets and WebTransport in it, beside TCP on one number.

    datagrams ⇄ port ⇄ client ⇄ streams: an exchange with the application, or a session
                 │        └ drivers/quic: the connection, sans-I/O, within our bounds
                 └ keys: identifiers, Retry, reset tokens

Who asks for a connection has to show that its address is its own (Retry, RFC 9000 section 8.1.2)
before anything is kept for it; then it is a visitor of the same entrance as those of TCP. Nothing
is resumed and no request comes before the handshake is complete (no 0-RTT). What one connection
may hold in memory is less than `CONNECTION_HELD_MAX`.

    keys       what a node's processes must agree on: identifiers, tokens
    neighbours the other processes of the node, which share the port
    sockets    UDP, answered from the address that was asked
    streams    what a stream may be used for
    request    a request, checked
    exchange   a request and its answer, for an ASGI application
    stream_transport   a stream as a WebSocket sees its transport
    webtransport       a conversation over WebTransport
    sessions           which of the two a CONNECT becomes
    client     one connection
    port       all of them: whose a datagram is, who may begin
"""
