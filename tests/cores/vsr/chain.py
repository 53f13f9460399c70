"""Prepares as a primary makes them, each naming the one before."""

from typing import Any

from appliance.formats import envelope as env
from appliance.formats import session as ses
from appliance.formats.envelope import Header, Message
from tests.cores.vsr.group import CLUSTER, SHARD, START_US

ROOT = env.root(CLUSTER, SHARD)


def prepare(
    op: int,
    *,
    parent: Header | bytes = bytes(16),
    view: int = 0,
    commit: int = 0,
    client: bytes = b"who asks, always",
    sender: int = 0,
    session: int = 1,
) -> Message:
    """The prepare of an empty operation at `op`."""
    asked = (op << 32 | view).to_bytes(16, "little")
    body = ses.encode(ses.SessionBlock(client, session, 0, bytes(16), asked, bytes(32)))
    digest = parent if isinstance(parent, bytes) else parent.digest
    header = env.make(
        env.PREPARE,
        cluster=CLUSTER,
        shard=SHARD,
        operation=env.OPERATION_NOOP,
        view=view,
        op=op,
        commit_num=min(commit, op - 1),
        body=body,
        area=digest + (START_US + op).to_bytes(8, "little"),
    )
    return Message(header, body, sender)


def chain(
    last: int, *, view: int = 0, first: int = 1, parent: Header = ROOT, sender: int = 0
) -> dict[int, Message]:
    """Prepares `first` .. `last` of one view, by op; the first one names `parent`."""
    out: dict[int, Message] = {}
    for op in range(first, last + 1):
        out[op] = prepare(op, parent=parent, view=view, sender=sender)
        parent = out[op].header
    return out


def blank(op: int) -> Header:
    """A placeholder for an op of which nothing is known."""
    return env.reserved(op, CLUSTER, SHARD)


def message(command: int, *, sender: int, body: bytes = b"", **fields: Any) -> Message:
    """A message of this shard with a body."""
    header = env.make(command, cluster=CLUSTER, shard=SHARD, body=body, **fields)
    return Message(header, body, sender)
