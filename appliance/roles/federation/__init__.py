"""Federation in processes: channels with their stores, and the ways their messages take.

    store         rows of a channel in an LMDB environment, kept in groups
    carrier       the channels of a site over its links to other sites
    datagrams     links over QUIC on a UDP port
    participant   one bare channel on a byte stream, for whoever wants to attach an implementation

The core decides; these carry out its writes, then its messages, and call it when it is due.
"""
