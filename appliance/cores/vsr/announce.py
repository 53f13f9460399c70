"""What a replica announces: to members the log of a view, to clients who serves.

A log is named by its last headers, and by hooks that a lagging member can reach.
"""

from appliance.cores.vsr.member import Member
from appliance.formats import command as cmd
from appliance.formats import envelope as env
from appliance.formats import superblock as sb
from appliance.formats.envelope import Header
from appliance.formats.membership import encode_configuration


def tell_client(member: Member, client: bytes, echo_ns: int = 0) -> None:
    """Tell a client which view and members serve."""
    header = pong_client(member, client, echo_ns)
    member.send_client(client, header, encode_configuration(member.configuration))


def pong_client(member: Member, client: bytes, echo_ns: int) -> Header:
    """What tells a client which view this member serves."""
    assert len(client) == 16
    assert echo_ns >= 0
    return member.make(
        env.PONG_CLIENT,
        view=max(0, member.durable_log_view),
        op=member.commit_min,
        area=cmd.PongClient.pack(client, echo_ns),
        body=encode_configuration(member.configuration),
    )


def send_start_view(member: Member, mask: int, nonce: bytes) -> None:
    """Name the log of this view: its last headers, and hooks that a lagging member can reach."""
    assert member.is_primary
    assert member.log_view == member.view
    assert len(nonce) == 16
    name_log(member, mask, nonce, member.view, member.head)


def name_log(member: Member, mask: int, nonce: bytes, view: int, head: Header) -> None:
    """Name the log of `view` from `head` down, of which no more is committed than we know."""
    assert not mask >> member.index & 1
    assert mask >> len(member.members) == 0
    assert head.op <= member.op
    assert member.checkpoint is not None
    headers = start_view_headers(member, head)
    assert headers[0].digest == head.digest
    assert len(headers) <= sb.VIEW_HEADERS_MAX
    body = b"".join(
        (
            sb.encode_checkpoint_state(member.checkpoint),
            encode_configuration(member.configuration),
            *(h.raw for h in headers),
        )
    )
    header = member.make(
        env.START_VIEW,
        view=view,
        op=head.op,
        commit_num=min(member.commit_max, head.op),
        area=cmd.StartView.pack(nonce, member.checkpoint_op),
        body=body,
    )
    member.send(mask, header, body)


def start_view_headers(member: Member, head: Header) -> list[Header]:
    """The last P + 1 headers from `head` down, then the header of each checkpoint op still in
    the ring.
    """
    assert head.op <= member.op
    out = [head]
    low = max(0, head.op - member.geometry.pipeline_max)
    for op in range(head.op - 1, low - 1, -1):
        header = member.journal.at(op)
        if header is None:
            break  # below the repairable range
        out.append(header)
    interval = member.geometry.checkpoint_ops
    hook = head.op // interval * interval
    while hook > 0 and len(out) <= member.geometry.pipeline_max + 2 and hook >= member.repair_min:
        header = member.journal.at(hook)
        if header is not None and hook < out[-1].op and member.chained_from(hook):
            out.append(header)
        hook -= interval
    assert out[0].op - out[-1].op >= len(out) - 1
    assert len(out) <= member.geometry.pipeline_max + 3
    return out
