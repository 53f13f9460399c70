"""The objects: values that every replica may write and all replicas merge.

What people change together, and what must go on without a quorum, lives here: topics, pins,
reactions, read markers, profiles, presence. Replicas exchange the packets of Chotki.

**A replica** is a map from (id, type) to a state. Every write is a merge with what is there, and
merges commute, associate and are idempotent, so replicas that have seen the same packets hold the
same bytes, in whatever order and however often these came. A packet carries the number that its
source gave it; the version vector says, of each source, up to which number everything is here.

    register.py counter.py set.py map.py terms.py   one merge each, and how to write a change
    states.py                                       the table of merges

Source: the Chotki protocol (github.com/drpcorg/chotki), in the form of 128-bit ids; the types are
those of RDX. `docs/objects.md` tells where we send less than the Go implementation does.
"""
