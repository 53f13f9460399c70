"""The objects: values that every replica may write and all replicas merge.

What people change together, and what must go on without a quorum, lives here: topics, pins,
reactions, read markers, profiles, presence. Replicas exchange the packets of Chotki.

**A replica** is a map from (id, type) to a state. Every write is a merge with what is there, and
merges commute, associate and are idempotent, so replicas that have seen the same packets hold the
same bytes, in whatever order and however often these came. A packet carries the number that its
source gave it; the version vector says, of each source, up to which number everything is here.

**A session** is one connection: handshake, diff of what the other has not seen, then live changes.
A diff is seen as a whole or not at all; changes that come meanwhile wait for its end.

**Durable before said.** Nothing leaves, and nothing is acknowledged, before what was applied is
written: a crash never takes back what a peer has heard, so no packet number is used twice.

    register.py counter.py set.py map.py terms.py   one merge each, and how to write a change
    states.py         the table of merges
    packets.py        bytes of packets, both ways; every rule that a packet may break
    change.py         a change, parsed and checked
    plain_edit.py     the edit that nearly every packet is, read in one go
    log0.py           the packets that every replica begins with
    store.py          the ordered store that a replica needs, and the names of its keys
    state_table.py    states, vectors and index of changes over the store; the batch of one beat
    replica.py        applies changes whole, makes changes of its own
    diff.py           what a peer has not seen, as packets
    sync_point.py     what a diff has brought, until its end
    session.py        what is said to one peer, in which order
    exchange.py       all sessions: applying, holding back, passing on, refusing

Source: the Chotki protocol (github.com/drpcorg/chotki), in the form of 128-bit ids; the types are
those of RDX. `docs/objects.md` tells where we send less than the Go implementation does.
"""
