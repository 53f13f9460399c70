"""Federation in processes: channels with their stores, and the ways their messages take.

    role          wires links and shards; answers commands
    shard         carries the shared rooms of one shard while this node is the one to do it
    log_pieces    what is read of a site's log, and no more
    rooms         a shared room as records of the log and as entries of its channel
    shared_rooms  which rooms are shared, as of a place in the log
    site_links    links to the nodes of other sites
    store         rows of a channel in an LMDB environment, kept in groups
    carrier       the channels of a site over its links to other sites
    datagrams     links over QUIC on a UDP port
    bridge        a room's channel for an implementation that takes part as a site
    participant   one bare channel on a byte stream, for whoever wants to attach an implementation

The core decides; these carry out its writes, then its messages, and call it when it is due.
"""
