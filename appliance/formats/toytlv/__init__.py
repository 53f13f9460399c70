"""Bytes of the objects plane: integers, ids, records and version vectors as Chotki writes them.

Everything is little-endian and as short as it can be, except for keys of the store, whose bytes
must sort as the ids do.

    integers.py         zip, zig-zag, reversed float, zipped pair
    ids.py              an id in text, zipped, in 16 bytes, and packed into 64 bits
    records.py          type-length-value records: tiny, short, long; cutting a stream into them
    version_vectors.py  newest packet of each source

An id names a packet, an object, a class or a field: a source (the replica that made it) and a
progress, which is the source's packet number shifted left by 12 and the number of the field. The
wire allows 64 and 52 bits. What we create stays within 20 bits of source and 32 of packet number,
so that each of our ids also has a text form and fits one word of 64 bits.

Decoders are strict: a length that no encoder makes is refused with the name of the refusal
(`base/errors.py`, PacketRefused). They never fail in another way, whatever the bytes are.
"""
