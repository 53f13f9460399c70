"""How a story of a group begins, what may befall it, and that it ends well."""

from collections.abc import Callable

from appliance.formats import envelope as env
from appliance.formats import event, record
from appliance.formats.session import OK
from tests.cores.vsr.group import Group, Rule, Session


def running_group(ops: int = 10, *, replica_count: int = 3, seed: int = 1) -> tuple[Group, Session]:
    """A group with some history; replica 1 is its primary."""
    group = Group(replica_count, seed=seed)
    session = group.opened()
    group.run(20)
    group.fill(session, ops)
    group.until(group.converged)
    assert group.primary == 1
    return group, session


def lost_acks(group: Group) -> Rule:
    """No prepare_ok arrives until the rule is healed."""
    return group.drop(lambda s, t, header: header.command == env.PREPARE_OK)


def broken(group: Group, index: int, op: int) -> None:
    """The prepare rots while nobody looks: the replica finds out when it starts."""
    disk = group.nodes[index].disk
    disk.flip(disk.prepare_at(op) + 130)


def drop_segments(group: Group, oldest: int) -> None:
    """The shard's own records of a shipper that took all, then of who frees what lies below."""
    asked = group.client()
    last = group.core(1).state_machine.log_seq - 1
    period = (0, 1_000_000, 1_000_000, 1, last)
    bodies = [
        (record.KIND_SHIPPED, event.encode_shipped(event.Shipped(event.SHIP_CLAIM, 0, 1))),
        (
            record.KIND_SHIPPED,
            event.encode_shipped(event.Shipped(event.SHIP_ANNOUNCE, 0, 1, *period, last + 1)),
        ),
        (
            record.KIND_SHIPPED,
            event.encode_shipped(
                event.Shipped(event.SHIP_MANIFEST, 0, 1, *period, 0, b"a manifest's hash".ljust(32))
            ),
        ),
        (record.KIND_RETAIN, event.encode_retain(oldest)),
    ]
    for number, (kind, body) in enumerate(bodies, start=1):
        whole = record.encode(
            room_id=record.SHARD_ROOM_ID,
            msg_id=b"shipping %7d" % number,
            author_id=0,
            body=body,
            client_id=asked.client_id,
            client_seq=number,
            kind=kind,
        )
        asked.core.request(env.OPERATION_APPEND, whole, 1)
        asked.take()
        group.until(lambda: asked.core.ready)
        assert asked.results()[0][3] == OK, number


def crash_when(group: Group, index: int, ready: Callable[[], bool], ticks: int = 300) -> None:
    """Crash replica `index` at the first event after which `ready` holds."""
    for _ in range(ticks):
        for _ in range(10_000):
            if ready():
                return group.crash(index)
            if not group.go_on():
                break
        group.tell_time()
    raise AssertionError("the moment never came:\n" + group.report())


def ended(group: Group, session: Session | None = None) -> None:
    """The story ends well: all agree, everything asked is answered once, more can be asked."""
    group.heal()
    for node in group.nodes:
        if node.replica is None:
            group.start(node.index)
    group.until(lambda: all(s.core.ready for s in group.sessions), ticks=2000)
    if session is not None:
        group.put(session, 3)
    group.until(group.converged, ticks=2000)
    group.check()
    log = group.core(0).state_machine.log_seq
    assert all(group.core(i).state_machine.log_seq == log for i in range(group.replica_count))
    assert log == 1 + sum(s.asked for s in group.sessions), (
        "each record once: the room, and the texts"
    )
