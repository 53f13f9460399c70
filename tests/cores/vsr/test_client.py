"""The client's side: one request in flight, the same bytes until it is answered."""

import pytest

from appliance.base.prng import Prng
from appliance.cores.vsr.client import PING_TICKS, REQUEST_TICKS, REQUEST_TICKS_MAX, Client
from appliance.formats import envelope as env
from appliance.formats import session as ses
from appliance.formats.envelope import Header, Message
from appliance.formats.geometry import SMALL
from appliance.formats.group import Configuration
from appliance.formats.membership import encode_configuration
from tests.cores.vsr.group import CLUSTER, SHARD, Group

ME = b"the client here."


IDS = tuple(b"replica id %5d" % place for place in range(4))


def client(
    *connected: int, seed: int = 1, members: tuple[bytes, ...] = IDS[:3], replica_count: int = 3
) -> Client:
    out = Client(
        client_id=ME,
        cluster=CLUSTER,
        shard=SHARD,
        replica_count=replica_count,
        geometry=SMALL,
        prng=Prng(seed),
        members=members,
    )
    out.effects = []
    for place in connected:
        out.on_connected(members[place])
    return out


def sent(it: Client, command: int = env.REQUEST) -> list[tuple[int, Header, bytes]]:
    """What it sent since it was last asked, with places in `IDS`; other effects stay."""
    taken = [(IDS.index(e[1]), *e[2:]) for e in it.effects if e[0] == "send"]
    it.effects = [e for e in it.effects if e[0] != "send"]
    return [item for item in taken if item[1].command == command]


def reply(
    it: Client, *, op: int = 7, view: int = 0, digest: bytes | None = None, to: bytes = ME
) -> Message:
    header, _ = it.in_flight
    body = ses.encode(ses.SessionBlock(to, op, 0, bytes(16), digest or header.digest, bytes(32)))
    made = env.make(
        env.REPLY,
        cluster=CLUSTER,
        shard=SHARD,
        view=view,
        op=op,
        commit_num=op,
        aux=header.aux,
        operation=header.operation,
        body=body,
    )
    return Message(made, body, view % 3)


def pong(
    view: int,
    *,
    echo: int = 0,
    sender: int = 0,
    to: bytes = ME,
    configuration: Configuration | None = None,
) -> Message:
    body = b"" if configuration is None else encode_configuration(configuration)
    header = env.make(
        env.PONG_CLIENT,
        cluster=CLUSTER,
        shard=SHARD,
        epoch=0 if configuration is None else configuration.epoch,
        view=view,
        area=to + echo.to_bytes(8, "little"),
        body=body,
    )
    return Message(header, body, sender)


def eviction(session: int, *, reason: int = 1, to: bytes = ME) -> Message:
    header = env.make(
        env.EVICTION,
        cluster=CLUSTER,
        shard=SHARD,
        aux=reason,
        area=to + session.to_bytes(8, "little"),
    )
    return Message(header, b"", 0)


def registered(*connected: int) -> Client:
    out = client(*connected)
    out.on_message(reply(out))
    assert out.ready and out.session == 7
    out.effects = []
    return out


def ticks(it: Client, count: int) -> None:
    for _ in range(count):
        it.on_tick()


# --- registering ----------------------------------------------------------------------------------


def test_it_registers_by_itself() -> None:
    it = client(0, 1, 2)
    requests = sent(it)
    assert requests and {header.digest for _, header, _ in requests} == {it.in_flight[0].digest}
    _, header, body = requests[0]
    block = ses.decode(body)
    assert (header.operation, header.aux, block.session, block.client) == (
        env.OPERATION_REGISTER,
        0,
        0,
        ME,
    )
    assert not it.ready
    it.on_message(reply(it, op=12))
    assert it.ready and it.session == 12 and ("registered",) in it.effects


def test_requests_count_from_one_and_name_the_reply_before() -> None:
    it = registered(0, 1, 2)
    before = it.reply_digest
    for number in (1, 2, 3):
        it.request(env.OPERATION_APPEND, b"", 0)
        ((target, header, body),) = sent(it)
        block = ses.decode(body)
        assert (target, header.aux, block.session, block.reply_parent) == (0, number, 7, before)
        assert not it.ready
        answer = reply(it, op=20 + number)
        it.on_message(answer)
        before = answer.header.digest
        assert it.ready and it.effects.pop()[0] == "reply"


def test_a_second_request_at_a_time_is_the_callers_bug() -> None:
    it = registered(0)
    it.request(env.OPERATION_APPEND, b"", 0)
    with pytest.raises(AssertionError):
        it.request(env.OPERATION_APPEND, b"", 0)


# --- retries --------------------------------------------------------------------------------------


def test_retries_repeat_the_same_bytes_and_go_around() -> None:
    it = registered(0, 1, 2)
    it.request(env.OPERATION_APPEND, b"", 0)
    ticks(it, 3000)
    requests = sent(it)
    assert len(requests) > 6
    assert len({(header.raw, body) for _, header, body in requests}) == 1
    targets = [target for target, _, _ in requests]
    assert targets[:2] == [0, 0] and set(targets) == {0, 1, 2}


def test_patience_doubles_with_jitter_up_to_its_limit() -> None:
    it = registered(0, 1, 2)
    it.request(env.OPERATION_APPEND, b"", 0)
    moments = []
    for tick in range(5000):
        it.on_tick()
        if sent(it):
            moments.append(tick)
    gaps = [b - a for a, b in zip([0, *moments], moments, strict=False)]
    assert gaps[1] <= REQUEST_TICKS + 1
    assert all(gap <= REQUEST_TICKS_MAX for gap in gaps)
    assert REQUEST_TICKS_MAX // 2 <= max(gaps)
    other = registered(0, 1, 2)
    other.prng = Prng(99)
    other.request(env.OPERATION_APPEND, b"", 0)
    theirs = []
    for tick in range(5000):
        other.on_tick()
        if sent(other):
            theirs.append(tick)
    assert theirs != moments, "equal periods of many clients would resonate"


def test_answers_to_something_else_change_nothing() -> None:
    it = registered(0, 1, 2)
    it.request(env.OPERATION_APPEND, b"", 0)
    it.on_message(reply(it, digest=b"another request."))
    it.on_message(reply(it, to=b"another client.."))
    it.on_message(Message(env.make(env.REPLY, cluster=b"another cluster ", shard=SHARD), b"", 0))
    it.on_message(Message(env.make(env.REPLY, cluster=CLUSTER, shard=SHARD, body=b"x"), b"x", 0))
    assert not it.ready
    answer = reply(it)
    it.on_message(answer)
    it.on_message(answer)
    assert [e[0] for e in it.effects].count("reply") == 1, "the second copy of a reply is nothing"


# --- views ----------------------------------------------------------------------------------------


def test_a_newer_view_is_asked_at_once() -> None:
    it = registered(0, 1, 2)
    it.request(env.OPERATION_APPEND, b"", 0)
    first = sent(it)[0]
    it.on_message(pong(4, echo=5, sender=2))
    ((target, header, body),) = sent(it)
    assert target == 4 % 3 and (header.raw, body) == (first[1].raw, first[2]), "its digest stays"
    it.on_message(pong(4, echo=5, sender=2))
    it.on_message(pong(3, sender=1))
    assert not sent(it), "nothing new"


def test_an_announcement_of_the_same_view_is_followed() -> None:
    """The primary of this view has become ready: a pong without echo, which nobody asked for."""
    it = registered(0, 1, 2)
    it.request(env.OPERATION_APPEND, b"", 0)
    ticks(it, 60)
    sent(it)
    it.on_message(pong(0))
    assert [target for target, _, _ in sent(it)] == [0]


def test_the_view_of_a_reply_is_learned_for_the_next_request() -> None:
    it = registered(0, 1, 2)
    it.request(env.OPERATION_APPEND, b"", 0)
    it.on_message(reply(it, view=5))
    sent(it)
    it.request(env.OPERATION_APPEND, b"", 0)
    ((target, header, _),) = sent(it)
    assert target == 2 and header.view == 5


# --- connections ----------------------------------------------------------------------------------


def test_only_connected_replicas_are_asked() -> None:
    it = registered(1)
    it.request(env.OPERATION_APPEND, b"", 0)
    ticks(it, 2000)
    assert {target for target, _, _ in sent(it)} == {1}


def test_a_broken_connection_is_not_waited_for() -> None:
    it = registered(0, 1, 2)
    it.request(env.OPERATION_APPEND, b"", 0)
    sent(it)
    it.on_disconnected(IDS[0])
    requests = [e[1:] for e in it.effects if e[0] == "send"]
    assert [t for t, h, _ in requests if h.command == env.REQUEST] == [IDS[1]]
    assert {t for t, h, _ in requests if h.command == env.PING_CLIENT} == {IDS[1], IDS[2]}


def test_a_new_connection_says_who_is_there_and_carries_what_is_in_flight() -> None:
    it = registered()
    it.request(env.OPERATION_APPEND, b"", 0)
    it.effects = []
    it.on_connected(IDS[0])
    commands = [(t, h.command) for _, t, h, _ in it.effects]
    assert commands == [(IDS[0], env.PING_CLIENT), (IDS[0], env.REQUEST)]
    assert it.effects[0][2].area[:16] == ME and it.effects[0][2].op == 7


def test_pings_are_repeated() -> None:
    it = registered(0, 2)
    ticks(it, 700)
    assert [t for t, _, _ in sent(it, env.PING_CLIENT)] == [0, 2, 0, 2]


def test_who_votes_now_is_found_among_those_who_followed_when_the_members_were_learned() -> None:
    it = client(0, 1, 2, 3, members=IDS, replica_count=2)
    sent(it)  # lost, or nobody was normal yet
    ticks(it, PING_TICKS)
    assert [place for place, _, _ in sent(it, env.PING_CLIENT)] == [0, 1, 2, 3]
    voting = Configuration(1, 9, 2, (IDS[2], IDS[3], IDS[0], IDS[1]))
    it.on_message(pong(1, sender=2, configuration=voting))
    ((place, _, _),) = sent(it)
    assert place == 3  # the primary of view 1


def test_members_that_were_not_known_at_first_are_asked_by_their_ids() -> None:
    it = client(0, 1, 2)
    it.on_connected(IDS[3])  # a node that was added; no member yet, as far as the client knows
    sent(it)
    grown = Configuration(1, 9, 3, (IDS[3], IDS[1], IDS[2], IDS[0]))
    it.on_message(pong(3, sender=2, configuration=grown))
    it.on_message(reply(it, op=4))
    it.request(env.OPERATION_APPEND, b"", 0)
    assert {place for place, _, _ in sent(it)} == {3}


def test_a_connection_that_ends_is_its_replicas_whatever_place_that_has_now() -> None:
    it = client(0, 1, 2)
    it.on_message(pong(0, sender=1, configuration=Configuration(1, 9, 3, IDS[2::-1])))
    it.on_disconnected(IDS[0])
    assert it.connected == {IDS[1], IDS[2]}


# --- eviction -------------------------------------------------------------------------------------


def test_an_evicted_session_registers_anew_and_says_so() -> None:
    it = registered(0, 1, 2)
    it.request(env.OPERATION_APPEND, b"", 0)
    sent(it)
    it.on_message(eviction(7, reason=7))
    assert ("evicted", 7, 0) in it.effects and it.session == 0 and not it.ready
    ((_, header, body),) = sent(it)
    assert (header.operation, header.aux, ses.decode(body).session) == (
        env.OPERATION_REGISTER,
        0,
        0,
    )
    it.on_message(reply(it, op=33))
    assert it.session == 33 and it.request_number == 0


def test_an_eviction_of_another_session_or_client_is_ignored() -> None:
    it = registered(0, 1, 2)
    it.on_message(eviction(6))
    it.on_message(eviction(7, to=b"another client.."))
    assert it.ready and it.session == 7


# --- against a real group -------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_each_request_is_applied_once_through_loss_crashes_and_cuts(seed: int) -> None:
    group = Group(seed=seed)
    sessions = [group.opened(), group.client(), group.client()]
    dice = group.prng.fork()
    rule = group.drop(lambda s, t, header: min(s, t) < 0 and dice.chance(1, 4))
    for _ in range(12):
        for session in sessions:
            if session.core.ready:
                session.ask(1 + dice.below(3))
        if dice.chance(1, 3):
            victim = dice.below(3)
            group.crash(victim)
            group.run(dice.below(40))
            group.start(victim)
        group.run(dice.below(30))
    group.heal(rule)
    group.until(lambda: all(session.core.ready for session in sessions), ticks=3000)
    group.until(group.converged)
    group.check()
    for session in sessions:
        codes = [r[3] for _, body in session.replies for r in ses.RESULT_STRUCT.iter_unpack(body)]
        room = session is sessions[0]  # it created the room
        assert codes == [ses.OK] * (session.asked + room)
    assert group.core(0).state_machine.log_seq == 1 + sum(session.asked for session in sessions)


def test_partition_client_primary() -> None:
    """The primary is alive and this client cannot reach it: a backup forwards."""
    for direction in ("both", "requests", "replies"):
        group = Group()
        session = group.opened()
        primary = group.primary
        number = -session.number
        rules = {
            "requests": [group.drop(lambda s, t, h, p=primary, n=number: (s, t) == (n, p))],
            "replies": [group.drop(lambda s, t, h, p=primary, n=number: (s, t) == (p, n))],
        }.get(direction) or [group.drop(lambda s, t, h, p=primary, n=number: {s, t} == {n, p})]
        session.ask()
        group.until(lambda session=session: session.core.ready, ticks=900)
        group.heal(*rules)
        assert group.primary == primary
        group.check()
