"""The bytes of federation: messages of Scalable Data Sync, their ids, filters, and link frames.

Purpose. Sites that share a room speak Scalable Data Sync (SDS) with its repair extension (SDS-R).
Field numbers are those of the published draft, filter bytes those of the one other implementation
that is in use, so that it can be attached. docs/federation.md tables every message and frame.

    causal.proto   the messages;  causal_pb2.py is made from it by protoc and committed
    wire           fields of a message without understanding them: caps before anything is built
    message        one SDS message: content, sync or ephemeral
    message_id     what a message of ours is called
    bloom          the filter of ids received: geometry, positions, bytes, rollover
    content        what a content message of a room holds, signed by the site it came from
    link           frames between two sites, around and beside SDS messages

Nothing here trusts its input: bytes that are wrong raise `CausalRefused` with a reason that is
counted, and a cap is checked before memory is spent.
"""
