"""A member of the farm: the Raft core over an LMDB store and logged-in connections.

    settings   what an operator says of a member, checked
    storage    the core's writes as one transaction; what it finds when it starts again
    listener   accepted connections: login, requests in, answers out in order
    link       our connection to a peer: dialled, logged in, dialled again
    member     the beat: inputs to the core, writes flushed, then words
    client     posts values to whoever leads
    serve      members alone, or several on one listener
    role       a node's member: posts the node's status, takes part in its site's farm
    figures    the node's real figures as the document that is posted
    publisher  the signed directory: signed if this node is chosen, kept by all
    acts       what an operator wants of the farm, one after the other
    mover      follows the placement that is wanted, a step of a shard at a time
    holding    ends the replica that was moved away, makes the one that was taken in
    node_files what a node keeps of the farm in its folder

One beat at a time: while a flush is under way inputs gather, and are taken together by the next
beat, so many posts share one flush.
"""
