"""Links over QUIC: datagrams for what is small and may be lost, a stream for the rest.

The library is without input and output, but draws its keys and identifiers itself, so links are not
simulated; the channels above them are. It cannot ask the dialling side for a certificate, so that
side proves who it is by a signature once the connection stands:

    dialling site                                   listening site
        │ ◀──────── TLS 1.3, the listener's certificate ──── │   compared with the key we know
        │ ◀──────── challenge: 32 random bytes ───────────── │
        │ ── proof: Ed25519 over both, challenge and key ──▶ │   compared with the site's key
        │ ◀═══════════════ hello, messages … ══════════════▶ │

A signature is good for one challenge and one listener's key, so nobody in the middle can use it.

    authentication   challenge and proof
    quic_link        one connection: frames out of streams and datagrams, bounded queues
    quic_endpoint    all connections of one UDP port; Retry for who dials
"""
