"""Mending the log: a missing head, broken chains of headers, prepares that are not durable here.

What may be written behind the head is decided by `accepts`: only what the chain from the head
down names, or what this very view prepared. An older view number is no reason to refuse, a newer
one none to accept.
"""

from appliance.cores.vsr import evaluate, log_list, normal, replies, start_view, wal, wants
from appliance.cores.vsr.member import Member, Peer
from appliance.cores.vsr.status import Status
from appliance.formats import command as cmd
from appliance.formats import envelope as env
from appliance.formats.envelope import Header, Message
from appliance.formats.geometry import HEADER_SIZE, whole_sectors

HEAD_TICKS = 5  # between two questions for a log whose head is not here
REPAIRS_PER_PEER_MAX = 4  # request_prepare in flight to one peer
READS_FOR_OTHERS_MAX = 8  # prepares being read for peers at once
FAULT_PATIENCE_TICKS = 1000  # without progress: slots below repair_min are given up
REPAIR_TICKS_MAX = 50  # then a request_prepare is given up and asked elsewhere


def allowed(member: Member) -> bool:
    """Whether this member knows well enough what its log should be."""
    if member.installing:
        return False
    if member.status == Status.NORMAL:
        return True
    return member.status == Status.VIEW_CHANGE and member.is_primary and member.dvc_quorum


def advance(member: Member) -> None:
    """Ask for, or write, what is missing; bounded work."""
    if not member.repair_due:
        return
    wants.take_repair(member)
    if not allowed(member):
        return
    if member.status == Status.NORMAL and not member.is_primary and member.op < member.commit_max:
        start_view.ask(member, member.view, HEAD_TICKS)
    assert not member.installing
    low = _lowest(member)
    if not member.chained_from(low):
        _request_headers(member, low)
    _repair_prepares(member, low)
    replies.repair(member)


def _lowest(member: Member) -> int:
    """The lowest op to mend: repair_min, or below it a slot that lost what peers may still have."""
    low = max(1, member.repair_min)
    assert low <= member.op + 1
    journal = member.journal
    if not journal.faulty_count or member.status != Status.NORMAL:
        return low
    if journal.faulty_count != member.faulty_before:
        member.faulty_before = journal.faulty_count
        member.faulty_tick = member.tick  # found or mended one: there is hope
    if member.tick - member.faulty_tick > FAULT_PATIENCE_TICKS:
        return low
    slot, size = journal.faulty.find(1), journal.slot_count
    while slot >= 0:
        op = member.op - (member.op - slot) % size
        if 0 < op < low:
            low = op
        slot = journal.faulty.find(1, slot + 1)
    return low


def _request_headers(member: Member, low: int) -> None:
    """Ask a peer for the headers below the highest break of the chain."""
    if member.tick < member.headers_tick:
        return
    high = member.chain.low - 1
    if high < low:
        return
    first = high
    if high < member.repair_min:
        first = max(low, high - cmd.HEADERS_PER_ANSWER_MAX + 1)  # few of many are missing there
    while (
        first > low
        and high - first < cmd.HEADERS_PER_ANSWER_MAX - 1
        and member.journal.at(first) is None
    ):
        first -= 1
    assert 0 < low <= first <= high
    assert high <= member.op
    assert high - first < cmd.HEADERS_PER_ANSWER_MAX or first == high
    member.headers_tick = member.tick + 2
    peer = member.any_other()
    if peer is None:
        return
    member.mark("headers_requested")
    member.send(
        1 << peer,
        member.make(
            env.REQUEST_HEADERS, view=member.view, op=high, area=cmd.RequestHeaders.pack(first)
        ),
    )


def _repair_prepares(member: Member, low: int) -> None:
    """Make the prepares of low..op durable here: those to be applied next come first."""
    journal = member.journal
    assert 0 <= journal.faulty_count <= journal.dirty_count
    in_flight = len(member.wal.prepares) + len(member.wal.witnesses)
    if journal.dirty_count <= in_flight and not journal.faulty_count:
        return  # all that is dirty is on its way to the disk
    _forget_useless(member, low)
    expire(member)
    if len(member.wal.queue) >= member.geometry.wal_writes_max:
        return  # the disk is behind: what is asked for now would only wait in memory
    floor, repair_min = max(low, member.chain.low), member.repair_min
    assert 0 < floor
    start = max(floor, member.commit_min + 1)
    budget = sum(
        REPAIRS_PER_PEER_MAX - p.outstanding
        for i, p in enumerate(member.peers)
        if i != member.index and i < member.replica_count
    )
    for op in (*range(start, member.op + 1), *range(floor, min(start, member.op + 1))):
        slot = journal.slot(op)
        if not journal.dirty[slot] or op < repair_min and not journal.faulty[slot]:
            continue  # below repair_min only what was lost is mended: `accepts` refuses the rest
        header = journal.at(op)
        if header is None or wal.writing(member, header):
            continue
        message = member.prepare_in_memory(header)
        if message is not None:
            wal.append(member, message)
        elif journal.present[slot] == header.digest:
            if slot not in member.rereading:
                member.rereading[slot] = header.digest
                wal.read_prepare(member, header, _on_reread)
        elif budget > 0 and op not in member.repairs:
            budget -= 1
            _request_prepare(member, header)
    return


def _on_reread(member: Member, message: Message | None, header: Header) -> None:
    """The slot's bytes are the wanted prepare: only the witness was missing."""
    slot = member.journal.slot(header.op)
    member.rereading.pop(slot, None)
    if message is None:
        wal.on_unreadable(member, header)
        wants.ask_repair(member)
        return
    owner = member.journal.headers[slot]
    if owner is not None and owner.digest == header.digest and member.journal.dirty[slot]:
        if not member.wal.busy(slot):
            wal.write_witness(member, header)


def _forget_useless(member: Member, low: int) -> None:
    """Slots outside low..op are checkpointed or truncated: nobody will ask for them."""
    assert 0 < low
    journal = member.journal
    size = journal.slot_count
    first = journal.slot(low)
    needed = member.op - low + 1  # slots from `first` on, around the ring
    assert needed >= 0
    slot = journal.dirty.find(1)
    while slot >= 0:
        if (slot - first) % size >= needed and slot != journal.slot(member.op):
            if not member.wal.busy(slot):
                journal.forget_faults(slot)
                owner = journal.headers[slot]
                if owner is not None and journal.present[slot] != owner.digest:
                    journal.forget_header(slot)
        slot = journal.dirty.find(1, slot + 1)


def _request_prepare(member: Member, header: Header) -> None:
    assert header.op not in member.repairs
    assert header.op <= member.op
    candidates = [
        i
        for i in range(member.replica_count)
        if i != member.index and member.peers[i].outstanding < REPAIRS_PER_PEER_MAX
    ]
    if not candidates:
        return
    if member.prng.chance(1, 10):
        peer = member.prng.choice(candidates)
    else:
        peer = min(candidates, key=lambda i: _preference(member.peers[i]))
    area = cmd.RequestPrepare.pack(header.digest)
    asked = member.make(env.REQUEST_PREPARE, op=header.op, area=area)
    assert peer != member.index
    assert member.peers[peer].outstanding < REPAIRS_PER_PEER_MAX
    if member.status == Status.VIEW_CHANGE:
        member.send(member.other_replicas, asked)  # few ops, and everybody waits for them
    else:
        member.send(1 << peer, asked)
    patience = min(2 * member.peers[peer].repair_ticks + 2, REPAIR_TICKS_MAX)
    member.repairs[header.op] = (peer, member.tick + patience)
    member.peers[peer].outstanding += 1
    member.peers[peer].asked_tick = member.tick


def _preference(peer: Peer) -> tuple[int, int, int]:
    """The lowest is asked: the fastest, least busy one. Those that look equal, as all do who have
    been silent for long, take turns: one of them may be gone.
    """
    assert peer.outstanding >= 0
    return peer.repair_ticks, peer.outstanding, peer.asked_tick


def expire(member: Member) -> None:
    """Give up on questions that nobody answered in time; silence makes a peer look slow."""
    for op in [op for op, (_, expiry) in member.repairs.items() if member.tick >= expiry]:
        peer, _ = member.repairs.pop(op)
        assert member.peers[peer].outstanding > 0
        member.peers[peer].outstanding -= 1
        member.peers[peer].repair_ticks = min(2 * member.peers[peer].repair_ticks, REPAIR_TICKS_MAX)


def accepts(member: Member, header: Header) -> bool:
    """Whether a header may be written at or behind the head."""
    if header.viewstamp > member.viewstamp or header.op > member.op:
        return False
    if header.op < member.repair_min:
        slot = member.journal.slot(header.op)
        if not member.journal.faulty[slot] or header.op <= member.op - member.geometry.slot_count:
            return False
    known = member.journal.at(header.op)
    if known is not None and known.digest == header.digest:
        return True
    if header.op == member.op:
        return False
    owner = member.journal.headers[member.journal.slot(header.op)]
    if owner is not None and owner.op > header.op:
        return False
    if header.op <= member.commit_min and known is not None:
        return False  # it was applied: only the identical prepare may mend it
    if member.head.viewstamp == header.viewstamp == member.log_viewstamp:
        return True
    if not member.chained_from(header.op + 1):
        return False
    child = member.journal.at(header.op + 1)
    return child is not None and child.parent == header.digest


def ignores_headers(member: Member, _message: Message) -> str | None:
    """Why headers of a peer are not read; None: they are."""
    return None if allowed(member) else "headers_not_repairing"


def on_headers(member: Member, message: Message) -> None:
    ignored = ignores_headers(member, message)
    if ignored is not None:
        return member.drop(ignored)
    assert not member.installing
    headers = log_list.parse_headers(message.body, member)
    if not headers:
        return member.drop("headers_invalid")
    for header in headers:
        if header.op > 0 and not evaluate.blank(header) and accepts(member, header):
            if member.journal.at(header.op) is None:
                member.headers_tick = 0  # progress: ask for the next ones at once
            member.journal.install(header)
    wants.ask_repair(member)
    return None


def ignores_request_headers(member: Member, _message: Message) -> str | None:
    """Why headers are not told; None: they are, as far as they are here."""
    return None if member.serves else "request_headers_standby"


def on_request_headers(member: Member, message: Message) -> None:
    ignored = ignores_request_headers(member, message)
    if ignored is not None:
        return member.drop(ignored)
    low, high = cmd.RequestHeaders.lowest(message.header.area), message.header.op
    assert low <= high
    assert message.sender != member.index
    found: list[bytes] = []
    high = min(high, member.op)
    for op in range(high, max(low, high - member.geometry.slot_count, 0) - 1, -1):
        header = member.journal.at(op)
        if header is not None:
            found.append(header.raw)
            if len(found) == cmd.HEADERS_PER_ANSWER_MAX:
                break
    if found:
        assert len(found) <= cmd.HEADERS_PER_ANSWER_MAX
        body = b"".join(found)
        member.send(
            1 << message.sender, member.make(env.HEADERS, view=member.view, body=body), body
        )
    return None


def ignores_repair_prepare(member: Member, message: Message) -> str | None:
    """Why a prepare that is not a new one of this view is of no use; None: it may mend the log."""
    return "prepare_not_repairing" if message.header.op > member.op or not allowed(member) else None


def on_repair_prepare(member: Member, message: Message) -> None:
    """A prepare that is not a new one of this view."""
    ignored = ignores_repair_prepare(member, message)
    header = message.header
    asked = member.repairs.pop(header.op, None)
    if asked is not None:
        peer = member.peers[asked[0]]
        assert peer.outstanding > 0
        peer.outstanding -= 1
        if message.sender == asked[0]:
            peer.repair_ticks = max(1, (3 * peer.repair_ticks + 1) // 4)
        wants.ask_repair(member)
    if ignored is not None:
        return member.drop(ignored)
    assert not member.installing
    assert header.op <= member.op
    if member.journal.clean(header):
        if member.status == Status.NORMAL:
            normal.acknowledge(member, header.op)
        return None
    if not accepts(member, header):
        return member.drop("prepare_not_accepted")
    member.journal.install(header)
    wal.append(member, message)
    return None


def ignores_request_prepare(member: Member, message: Message) -> str | None:
    """Why a prepare is not served; None: exactly this one is in memory, or can be read here."""
    if not member.serves:
        return "request_prepare_standby"
    digest, op = cmd.RequestPrepare.digest(message.header.area), message.header.op
    cached = member.prepares.get(op)
    if cached is not None and cached.header.digest == digest:
        return None
    if member.journal.present[member.journal.slot(op)] != digest or not any(digest):
        return "request_prepare_not_here"
    if member.reads_for_others >= READS_FOR_OTHERS_MAX:
        return "request_prepare_busy"
    return None


def on_request_prepare(member: Member, message: Message) -> None:
    """Serve a prepare; where that cannot be, stay silent, which denies nothing."""
    ignored = ignores_request_prepare(member, message)
    if ignored is not None:
        return member.drop(ignored)
    digest, op = cmd.RequestPrepare.digest(message.header.area), message.header.op
    assert op > 0
    cached = member.prepares.get(op)
    if cached is not None and cached.header.digest == digest:
        return _serve(member, cached, member.members[message.sender])
    slot = member.journal.slot(op)
    assert member.journal.present[slot] == digest
    assert member.reads_for_others < READS_FOR_OTHERS_MAX
    member.reads_for_others += 1
    known = member.journal.headers[slot]
    length = member.geometry.message_size_max
    if known is not None and known.digest == digest:
        length = whole_sectors(HEADER_SIZE + known.body_size)
    address = member.geometry.wal_prepares_offset + slot * member.geometry.message_size_max
    # by id: until the bytes are here the group may have another order
    member.read(address, length, _on_served, digest, member.members[message.sender])
    return None


def _on_served(member: Member, data: bytes | None, digest: bytes, asker: bytes) -> None:
    assert member.reads_for_others > 0
    member.reads_for_others -= 1
    header = env.decode_stored(data[:HEADER_SIZE]) if data is not None else None
    if header is None or header.digest != digest:
        return
    size = whole_sectors(HEADER_SIZE + header.body_size)
    assert data is not None
    message = wal.parse_prepare(data[:size], header)
    if message is not None:
        _serve(member, message, asker)
    else:
        wal.on_unreadable(member, header)


def _serve(member: Member, message: Message, asker: bytes) -> None:
    assert message.header.command == env.PREPARE
    member.count("prepares_served")
    member.send_to(asker, message.header, message.body)
