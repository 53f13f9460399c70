"""Federation: one participant of a channel of Scalable Data Sync, without input or output.

Purpose. A room is shared by sites that may not reach each other for hours. Everybody goes on; when
they meet, each ends with the same messages in the same order, each once, none lost.

Idea. Every message names the newest entries of its sender's log. Who lacks one of them knows what
it lacks, waits with delivering, and asks; who is named in a message knows that its sender has it.
No message is numbered, no participant is counted, and any bearer will do that passes some of them.

    on_local ─▶ stamp, log, broadcast ─▶ outgoing ── named by another ──▶ acknowledged
                                            └─ not in time: sent again
    on_message ─▶ known? ─▶ waiting ── nothing missing ─▶ Append ─▶ on_committed ─▶ log, Delivered
                              └─ missing ─▶ wanted ─▶ Retrieve (a store), repair request (everybody)

    channel      the entry point: events in, effects out, the next deadline
    state        all that is known, and the effects of one input
    sending      local, sync and ephemeral messages, what is sent again
    receiving    what comes in, waits, and is delivered
    opening      after a restart from the store, after a takeover from the site's log
    log          the order;  incoming, outgoing, wanted: the buffers;  repair: SDS-R's times
    exchange     all channels and links of a site: who may say what, which frame goes where
    attached     a participant of another implementation as a site of a room
    turn         whose turn it is to carry the rooms of a shard
    parameters   times and numbers;  sync_schedule: when to say what we have

The log of the site is the truth. A foreign message is delivered when that log has committed it, so
being named means durable at a quorum; places and ids of local messages follow from the log alone,
so whoever carries the channel next gives them the same ones.

Promises. The order of the log depends on the set of messages only. A message is delivered once,
after all that it names, or with the gap said. Nothing unacknowledged is forgotten. A filter proves
presence, never absence, and only while it is not saturated. Every buffer has a cap and a policy.

Beside the newest entries, sync messages name entries that no entry names yet: who has all of these
has everything, and a message that came late behind newer ones is not overlooked.

Source: the drafts of SDS and SDS-R; docs/federation.md.
"""
