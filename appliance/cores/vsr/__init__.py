"""Viewstamped Replication of one shard: a deterministic machine that only computes.

Theory of operation
    A shard's log is a chain of *prepares*, numbered by op and linked by digest. The primary of a
    view gives ops to requests, every replica writes them to its write-ahead ring and
    acknowledges, and at a replication quorum the prepare is committed, applied to the state
    machine and answered.

    Events go in by `on_...` methods of `replica.Replica`; what should happen outside comes out as
    rows of its
    `effects`. Every handler only changes state; what follows from the new state (commits,
    repairs, acknowledgements, the next step of a view change) is done by one pass,
    `Replica.settle`, in a fixed order. So no handler calls another one, and a protocol step has
    one place. A handler first asks `ignores_...`, which stands above it and changes nothing, why it
    should do nothing; then it asserts what now holds, and works.

Promises
    - An acknowledgement is sent only after the prepare and then its witness header are durable.
    - No message promises a view before the superblock that holds it is durable (`Member.send`).
    - Highest log_view wins a view change; only a nack quorum truncates; what is unreadable is
    never nacked.
    - Whatever a peer can repair is repaired; a halt is for states in which going on could lie.

Duties of whoever drives a replica
    What must be durable before something is said waits in the core, for `on_write_done`; so the
    driver knows no rule of the protocol, but keeps these:

    - `open.load` flushes before it reads, and `open` comes before any other event.
    - Effects are performed in their order, those of an event before those of the next one; events
      that came in one reading may share them. An effect that is being performed feeds no event: a
      completion comes later, however quick the disk was.
    - A write is done when a flush behind it has succeeded, not before; writes may be done in any
      order. One that has failed is never done, and ends the process: nobody knows what lies there.
    - A read waits for writes under way that it overlaps. What the disk cannot give is None.
    - Messages leave signed under `incarnation_durable`, now or never; each may be lost, come twice
      or late. Those that come have passed the checks of `docs/protocol.md`, and who sent one is
      known by its connection.
    - After a HALT nothing more is performed, and the process ends.
    - A tick is counted when it has passed, and before an event that came after it; `idle_ticks`
      tells how many may be counted together. After a stall one is caught up, no more.

    As a loop:

        core.open(load(geometry, flush, read), *times())
        while True:
            effects, core.effects = core.effects, []
            for effect in effects:
                perform(effect)  # ends all with a HALT
            events = wait(idle_ticks(core) + 1)  # until something comes, or so many have passed
            for _ in range(ticks_passed()):
                core.on_tick(*times())
            for event in events:  # on_message, on_read_done, on_write_done, on_segment_broken
                event(core)

    Before it ends of itself it lets another member lead (`hand_over`), and performs once more.

Rooms of this package, each importing only those above it
    quorums, effects, timeout   numbers and names
    status                      what a member does, and what makes it do something else
    journal                     the slots of the ring: header, dirty, faulty, what is readable
    recovery                    from two rings and four superblocks to a journal and a status
    sessions                    the replicated table of clients and their latest replies
    chain, wal_writes           how far headers are linked; what is on its way to the rings
    member                      the state of one member; sending, reading and writing
    views, votes, epochs        which view and group it is in, and who wants to leave
    skipped, wants              what it lacks, and what it shall do next
    superblock                  what must outlive a crash, written copy by copy
    report                      what its status tells of it
    write_order                 one write after the other to the same place
    wal, commit, checkpoint     append; apply; make a state durable
    log_list, tail, announce    how a log is described, ends, and is named to others
    requests, normal            the first of the protocol's two halves
    view_change, epoch_end      the other one; who is left in the epoch before
    repair, chunks, scrub       mending what is missing or broken
    startup, timers             the first steps of a life; what is due
    steps, replica              what follows an event, in which order; the dispatcher
    hand_over                   a primary that stops lets another one lead
    restored                    a data file that begins with a state that was made elsewhere
    remedies                    what an operator does about a halt
    client                      the other end: a session that sends requests and waits for replies
    pace                        when a session's next request leaves
    log_sessions                all sessions of one process, for whoever drives them

    Any of them may read any field of a member. Which one stores it, and so knows why it has its
    value, `tools/tidy_owners.py` says; others call a function there.

Sources: Liskov and Cowling, Viewstamped Replication Revisited (2012); Alagappan et al., Protocol-
Aware Recovery (FAST 2018); Howard et al., Flexible Paxos (2016); TigerBeetle's public design
notes. `docs/protocol.md` has the rules.
"""
