"""A member of the farm: the Raft core over an LMDB store and logged-in connections.

    settings   what an operator says of a member, checked
    storage    the core's writes as one transaction; what it finds when it starts again
    door       accepted connections: login, requests in, answers out in order
    link       our connection to a peer: dialled, logged in, dialled again
    member     the beat: inputs to the core, writes flushed, then words
    client     posts values to whoever leads

One beat at a time: while a flush is under way inputs gather, and are taken together by the next
beat, so many posts share one flush.
"""
