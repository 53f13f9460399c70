"""Byte streams between replicas of one protocol: who is there, how much waits, who was silent.

A stream knows no frames. It gives the bytes that come to a codec, and sends what the codec hands
over. The objects and the channels of federation speak through it.

    acceptor.py      accepts streams within bounds
    dialler.py       keeps one stream to a peer: dials, waits for its end, pauses, dials again
    stream.py        one stream: the transport's side and the codec's side
    certificate.py   what a peer shows, to pair with it by its fingerprint

**Who is there.** TLS 1.3, both sides show a certificate (`tls.py`). `pins` maps the SHA-256 of a
public key to the name of its owner; whoever is not in it is turned away before its first byte
reaches a codec. The table is read at each handshake, so a peer may be added or removed while we
run. A certificate must be an anchor of the context too, since the library verifies a client only
so: `add_anchor` adds one. Without a context a stream is plain, for loopback only.

**Bounds.** A handshake has a deadline, and there are at most HANDSHAKES_MAX at a time. What waits
to be sent is at most `waiting_max`; one byte more closes the stream with `overflow`, since a part
of a stream cannot be left out. A peer that sends nothing for `silence_ms_max`, or takes nothing
for `stall_ms_max` while something waits for it, is closed with `silent` or `stalled`. All reasons
are counted as `closed_<reason>` in the counters that were given.

**Order of calls.** `make_codec(stream)` when the peer is known, then `on_bytes` any number of
times, `on_writable` whenever less than half of `waiting_max` waits again, and `on_closed` once. A
codec that raises PacketRefused from `on_bytes` has its stream closed, with that reason, after what
it sent.
"""
