"""Who has forgotten what it promised is not let in.

A volume that is replaced by an older copy of itself, or made anew under an old name, comes back
without what it acknowledged and without the views that it promised. By its own bytes nobody can
tell. So the others remember, and durably, of each member the newest *life* (one process on one
volume, numbered by the incarnation), checkpoint and committed op that it told:

    ping   ── what life this is, what the volume knew when it began ──▶  judged, then kept
    pong   ◀── what is held durably of whoever asked ──                  introduced, or refused

Votes, lists and acknowledgements go only to members to which this life is *introduced*, and only
their lists are counted: whoever ever counted on a life remembers it. A life whose volume knows
nothing of the one before is refused by everybody who does; it halts and names the way out.

A volume that was made while nobody could be asked says nothing but pings until so many have
answered that they have never heard of this replica that every quorum which it could have been part
of holds one of them.
"""

from appliance.cores.vsr import denial, space, views, wants
from appliance.cores.vsr.member import Member
from appliance.cores.vsr.status import Status
from appliance.formats import checkpoint as ck
from appliance.formats import command as cmd
from appliance.formats import envelope as env
from appliance.formats import superblock as sb
from appliance.formats.envelope import Message
from appliance.formats.lives import (
    ANSWER_DIVERGED,
    ANSWER_NEW,
    ANSWER_REFUSED,
    FLAG_REMADE,
    FLAG_SHORT,
    FLAG_UNVOUCHED,
    GONE,
    INCARNATION_MAX,
    LIVES_MAX,
    ROUTE_BINDS,
    ROUTE_CORRECTS,
    Answer,
    Life,
    Refusal,
    Told,
    decode_answer,
    decode_life,
    encode_answer,
    encode_life,
    keep,
    start_of,
)

# What a member may say of which life it is before anybody knows it.
INTRODUCTIONS = (env.PING, env.PONG)


def begin(member: Member, block: sb.Superblock) -> None:
    """What the volume remembers, of others and of itself; this life is one more.

    A volume of a version that kept no lives knows its last one by number alone.
    """
    moment_s = min(member.realtime_us // 1_000_000, INCARNATION_MAX)
    member.incarnation = max(block.incarnation + 1, moment_s)
    known = block.lives or [(block.incarnation, 0)]
    assert len(known) <= LIVES_MAX
    assert member.incarnation > block.incarnation
    member.lives = one_more(known, (member.incarnation, _start(member)))
    if block.told:
        member.told = keep(dict(zip(block.members, block.told, strict=True)), member.members)
    if block.life_gone > gone(member).incarnation:
        member.told[GONE] = Told(block.life_gone)


def gone(member: Member) -> Told:
    """What is remembered of members that were removed: the highest number of their lives."""
    return member.told.get(GONE, Told())


def remembered(member: Member, replica_id: bytes) -> Told:
    """What is remembered of a member. One that has told nothing yet may have been a member before:
    then its former lives are among those that are gone.
    """
    return member.told[replica_id] if replica_id in member.told else gone(member)


def one_more(known: list[tuple[int, int]], life: tuple[int, int]) -> list[tuple[int, int]]:
    """The lives that a volume knows, and this one. A full list leaves out the third: it lies
    between the second and the next then, see `_may_be_left_out`.
    """
    lives = [*known, life]
    if len(lives) > LIVES_MAX:
        del lives[2]
    assert lives[-1] == life
    assert len(lives) <= LIVES_MAX
    return lives


def rows(member: Member) -> list[Told]:
    """What is remembered of each member, in their order; for the superblock."""
    if not any(replica_id in member.told for replica_id in member.members):
        return []
    assert len(member.members) == len(member.peers)
    return [member.told.get(replica_id, Told()) for replica_id in member.members]


# --- telling ------------------------------------------------------------------------------------


def ping(member: Member) -> None:
    """Say to all members which life this is, where it stands, and ask for their wall clocks."""
    assert member.checkpoint is not None
    assert member.superblock is not None
    body = encode_life(
        Life(
            incarnation=member.incarnation,
            start=_start(member),
            flags=member.superblock.flags | space.flag(member),
            checkpoint=member.superblock.checkpoint.header.op,
            commit=_commit_durable(member),
            held=member.held,
            lives=member.superblock.lives,
            remembered=[
                _heard(member, member_index) for member_index in range(len(member.members))
            ],
        )
    )
    area = cmd.Ping.pack(member.monotonic_ns, ck.short_id(member.checkpoint.checkpoint_id))
    header = member.make(
        env.PING,
        view=max(0, member.durable_view),
        aux=int(member.syncing or member.backfill is not None),
        op=member.checkpoint_op,
        commit_num=member.commit_min,
        area=area,
        body=body,
    )
    member.send(member.others, header, body, ROUTE_CORRECTS | ROUTE_BINDS)


def _heard(member: Member, member_index: int) -> int:
    """The newest life that was heard of a member, also one that was refused: whoever is new there
    must go on above it, as links let nothing through that comes under a lower number."""
    known = remembered(member, member.members[member_index])
    return max(known.incarnation, member.peers[member_index].life_refused)


def _start(member: Member) -> int:
    assert len(member.nonce) == 16
    return start_of(member.nonce)


def _commit_durable(member: Member) -> int:
    """The newest op that is committed and will be found here after a restart."""
    assert member.superblock is not None
    floor = member.superblock.checkpoint.header.op
    assert floor <= member.commit_min
    if member.installing:
        return floor
    for op in range(member.commit_min, floor, -1):
        header = member.journal.at(op)
        if header is not None and member.journal.clean(header):
            return op
    return floor


def pong(member: Member, member_index: int, stamp: int, incarnation: int) -> None:
    """Answer a ping: our wall clock, and what is held durably of whoever asked."""
    assert member_index != member.index
    assert stamp >= 0
    block, replica_id = member.superblock, member.members[member_index]
    assert block is not None
    told = Told()
    if block.told and replica_id in block.members:
        told = block.told[block.members.index(replica_id)]
    if not told.incarnation:
        told = Told(block.life_gone)
    if replica_id in member.refused:  # no promise rests on that: as it is known, durable or not
        told = told._replace(commit=max(told.commit, remembered(member, replica_id).commit))
    flags = member.refused[replica_id].flags if replica_id in member.refused else 0
    flags |= ANSWER_NEW if member.status == Status.UNVOUCHED else 0
    body = encode_answer(Answer(incarnation, flags, told))
    header = member.make(
        env.PONG,
        view=max(0, member.durable_view),
        area=cmd.Pong.pack(stamp, member.realtime_us),
        body=body,
    )
    member.send(1 << member_index, header, body)


def on_durable(member: Member) -> None:
    """The superblock has grown: a life that was heard of may be in it now."""
    for replica_id, (stamp, incarnation) in list(member.introductions.items()):
        member_index = member.index_of(replica_id)
        block = member.superblock
        assert block is not None
        if member_index < 0:
            del member.introductions[replica_id]
        elif block.told and replica_id in block.members:
            if block.told[block.members.index(replica_id)].incarnation >= incarnation:
                del member.introductions[replica_id]
                pong(member, member_index, stamp, incarnation)


# --- judging ------------------------------------------------------------------------------------


def forgotten(told: Told, life: Life) -> str:
    """What the volume of a life does not know though others do; empty: nothing."""
    assert life.lives
    newest, known = (told.incarnation, told.start), life.lives
    if not told.incarnation or newest == (life.incarnation, life.start):
        return ""
    if told.start and told.start == life.start:
        return ""  # the same process on the same volume, under a higher number
    if newest not in known:
        if told.incarnation < known[0][0]:
            return ""  # long ago: it has been introduced to others since
        if _may_be_left_out(told.incarnation, known):
            return ""
        if life.flags & FLAG_REMADE and not known[0][0]:
            return ""  # its group was asked when it was made, but nobody wrote down for which life
        return f"life {told.incarnation} of this replica, which the volume does not know"
    if max(life.checkpoint, life.held) < told.checkpoint:
        return f"its checkpoint {told.checkpoint}, the volume only {life.checkpoint}"
    if max(life.checkpoint, life.held) < told.commit:
        return f"its committed operation {told.commit}, the volume only {life.held}"
    return ""


def _must_hold(member: Member, member_index: int) -> Told:
    """What is remembered of a member, and what it cannot but hold: of two replicas whatever is
    committed in this epoch was acknowledged by both.
    """
    told = member.told.get(member.members[member_index], Told())
    assert member_index != member.index
    both = member.replica_count == 2 and max(member_index, member.index) < 2
    committed = denial.known_committed(member) if both and told.incarnation else 0
    if committed > max(told.commit, member.configuration.op):
        return told._replace(commit=committed)
    return told


def _may_be_left_out(incarnation: int, known: list[tuple[int, int]]) -> bool:
    """Whether a life may be one of those that a full list has no place for. A volume keeps the last
    life that was introduced, the first one after it and the newest: whoever starts again and again
    without hearing an answer had others between the second and the third. Lives that an older copy
    began are later than all that it has forgotten, so a copy made in such a time alone, and started
    so often, is not told apart.
    """
    assert len(known) <= LIVES_MAX
    return len(known) == LIVES_MAX and known[1][0] < incarnation < known[2][0]


def hear(member: Member, message: Message) -> None:
    """A member says which life it is; keep that, or refuse it, and answer."""
    replica_id = member.members[message.sender]
    stamp = cmd.Ping.monotonic_ns(message.header.area)
    life, peer = decode_life(message.body), member.peers[message.sender]
    assert message.sender != member.index
    assert stamp >= 0
    peer.knows = message.route, member.tick
    if life is None:  # of a version that does not say
        return pong(member, message.sender, stamp, 0)
    if max(life.incarnation, *life.remembered) > INCARNATION_MAX:
        return member.suspect(message.sender, "impossible_life")
    if life.remembered[member.index] > member.incarnation:
        _go_on_above(member, life.remembered[member.index])
    peer.space_short = bool(life.flags & FLAG_SHORT)
    told = remembered(member, replica_id)
    if life.flags & FLAG_UNVOUCHED:
        if replica_id in member.told:
            _refuse(member, message.sender, life, f"life {told.incarnation} of this replica")
    elif (life.incarnation, life.start) == (told.incarnation, told.start):
        refused = member.refused.get(replica_id)
        if refused is not None and not refused.flags & ANSWER_DIVERGED:
            del member.refused[replica_id]  # it was of a former volume, whose word came late
        checkpoint = max(told.checkpoint, life.checkpoint)
        commit = max(told.commit, life.commit)
        member.told[replica_id] = told._replace(checkpoint=checkpoint, commit=commit)
    elif life.incarnation > told.incarnation:  # else it is long over, or learns so by the answer
        told = member.told[replica_id] = _must_hold(member, message.sender)
        reason = forgotten(told, life)
        if reason:
            _refuse(member, message.sender, life, reason)
        else:
            member.refused.pop(replica_id, None)
            assert life.incarnation > told.incarnation
            now = Told(life.incarnation, life.start, life.checkpoint, life.commit)
            member.told[replica_id] = now
            member.introductions[replica_id] = (stamp, life.incarnation)
            member.persist()
    return pong(member, message.sender, stamp, life.incarnation)


def _go_on_above(member: Member, number: int) -> None:
    """Go on under a number above all that others have heard of this replica: they take what comes
    under a lower one for old, and under an equal one for another life's. The wall clock of a new
    volume's machine may be behind, or a former life began in the same second.
    """
    assert number >= member.incarnation
    member.mark("incarnation_raised")
    member.incarnation = number + 1
    assert member.incarnation > number
    # somebody may have heard of this life by its old number
    member.lives = one_more(member.lives, (member.incarnation, _start(member)))
    member.persist()


def _refuse(member: Member, member_index: int, life: Life, reason: str) -> None:
    assert member_index != member.index
    assert reason
    replica_id, peer = member.members[member_index], member.peers[member_index]
    peer.life_refused = max(peer.life_refused, life.incarnation)
    if replica_id not in member.refused:
        member.mark("member_refused")
    member.refused[replica_id] = Refusal(reason)


def refuses(member: Member, member_index: int, command: int) -> bool:
    """Whether a message of this member is not listened to: all but its word on who it is."""
    return (
        bool(member.refused)
        and command != env.PING
        and member.members[member_index] in member.refused
    )


def heard_back(member: Member, message: Message) -> None:
    """A member tells what it remembers of us."""
    replica_id = member.members[message.sender]
    answer = decode_answer(message.body)
    if answer is None:  # of a version that remembers nothing
        return _introduced(member, replica_id)
    if answer.told.incarnation > INCARNATION_MAX:
        return member.suspect(message.sender, "impossible_life")
    if answer.incarnation != member.incarnation:
        return None  # an answer to another life
    told, own = answer.told, (member.incarnation, _start(member))
    assert answer.incarnation == member.incarnation
    if told.incarnation >= member.incarnation and (told.incarnation, told.start) != own:
        return _go_on_above(member, told.incarnation)  # and be judged by what the volume knows
    if answer.flags & ANSWER_DIVERGED:
        return member.halt(
            "DIVERGED", f"replica {message.sender} and most others hold another checkpoint"
        )
    # Who holds this very life has refused a former one of the same number, whose word came late.
    if answer.flags & ANSWER_REFUSED and (told.incarnation, told.start) != own:
        unvouched = member.status == Status.UNVOUCHED
        return member.halt(
            "VOLUME_NOT_NEW" if unvouched else "VOLUME_OUTDATED",
            f"replica {message.sender} remembers life {told.incarnation} of this replica,"
            f" with checkpoint {told.checkpoint} and operation {told.commit}"
            f" committed; the volume here knows life {member.lives[0][0]} and its log ends at"
            f" {member.held}",
        )
    if member.status == Status.UNVOUCHED:
        return _vouched(member, replica_id, new=bool(answer.flags & ANSWER_NEW))
    if (told.incarnation, told.start) == own:
        _introduced(member, replica_id)
    return None


def _introduced(member: Member, replica_id: bytes) -> None:
    assert replica_id != member.replica_id
    if replica_id not in member.introduced:
        member.introduced.add(replica_id)
        member.lives = member.lives[-1:]
        assert member.lives
        member.find_introduced()
        views.repeat_list(member)  # what was kept back may be said now
        wants.ask_acknowledgements(member)


# --- volumes made in silence --------------------------------------------------------------------


def vouchers_needed(member: Member) -> int:
    """So many other replicas that no quorum this one could have been part of lacks them all."""
    if member.is_standby:
        return 0
    quorum = min(member.quorum_replication, member.quorum_view_change)
    assert 1 <= quorum <= member.replica_count
    return min(member.replica_count - quorum + 1, member.replica_count - 1)


def _vouched(member: Member, replica_id: bytes, *, new: bool) -> None:
    """`replica_id` has never heard of this replica; as a new one it may only not remember."""
    assert member.status == Status.UNVOUCHED
    assert replica_id != member.replica_id
    if 0 <= member.index_of(replica_id) < member.replica_count:
        member.vouchers[replica_id] = not new


def is_vouched(member: Member) -> bool:
    """Whether enough have vouched; or all, among them such as are as new as this one."""
    assert member.status == Status.UNVOUCHED
    needed, found = vouchers_needed(member), member.vouchers
    assert len(found) < member.replica_count or member.is_standby
    return sum(found.values()) >= needed or len(found) == member.replica_count - 1
