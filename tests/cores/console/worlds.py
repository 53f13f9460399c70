"""Sites and answers as processes give them, for tests of the console."""

from typing import Any

from appliance.cores.console.cells import lines
from appliance.cores.console.console import Console
from appliance.cores.console.model import Answers, Source
from appliance.formats.site import Node, Shard, Site
from appliance.formats.site_view import SiteView
from appliance.formats.status.status import parse
from tests.statuses import KINDS, VOLUME


def site(nodes: int = 3, shards: int = 1) -> Site:
    return Site(
        cluster=bytes(range(16)),
        token_issuer="issuer",
        token_audience="audience",
        nodes=[
            Node(
                index=i,
                name=f"node-{i}",
                host="127.0.0.1",
                peer_port=7400 + i,
                client_port=7440 + i,
                console_port=7480 + i,
                public_key=bytes([i]) * 32,
                certificate_pem="",
            )
            for i in range(nodes)
        ],
        shards=[
            Shard(
                number=s,
                members=[(i + s) % nodes for i in range(nodes)],
                replica_ids=[bytes([s + 1, i]) * 8 for i in range(nodes)],
                replica_count=nodes,
                standby_count=0,
                segments_max=4096,
            )
            for s in range(shards)
        ],
    )


def replica(
    index: int = 0,
    *,
    role: str = "backup",
    op: int = 1234,
    commit: int = 1234,
    records: int = 5678,
    silent: dict[int, int] | None = None,
    **changes: Any,
) -> dict[str, Any]:
    """What the replica at `index` of three answers; `silent`: peer -> ticks since it was heard."""
    silent = {} if silent is None else silent
    answer = {
        "status": "normal",
        "role": role,
        "replica": index,
        "view": 3,
        "log_view": 3,
        "op": op,
        "commit_min": commit,
        "commit_max": commit,
        "checkpoint": 960,
        "dirty": 0,
        "faulty": 0,
        "log_seq": records,
        "state_ready": True,
        "sync": [0, 0, 0],
        "clients": 12,
        "halted": None,
        "peers": {
            str(i): {
                "view": 3,
                "commit_min": commit,
                "checkpoint": 960,
                "silent_ticks": silent.get(i, 2),
            }
            for i in range(3)
            if i != index
        },
        "volume": VOLUME,
        "process": {"cpu_percent": 7.5, "rss": 96 << 20},
        "connections": 4,
        "edges": 1,
        "time": 1_700_000_000.0,
    }
    return answer | changes


def edge(*, acked: int = 1000, **changes: Any) -> dict[str, Any]:
    """What an edge answers."""
    answer = {
        "connections": 21,
        "subscriptions": 60,
        "acked": acked,
        "refused": 2,
        "lagging": 0,
        "ack": {"p50_us": 950, "p99_us": 3100},
        "process": {"cpu_percent": 3.0, "rss": 61 << 20},
    }
    return answer | changes


def healthy(records: int = 5678, acked: int = 1000) -> dict[Source, dict[str, Any] | None]:
    """Three nodes on one machine, all well, the primary on node 0."""
    answers: dict[Source, dict[str, Any] | None] = {}
    for i in range(3):
        answers[Source("replica", i, 0)] = replica(
            i, role="backup" if i else "primary", records=records
        )
        answers[Source("edge", i, 0)] = edge(acked=acked + i)
    return answers


# --- consoles that look at them

WALL_MS = 1_700_000_000_000


Raw = dict[Source, dict[str, Any] | None]


def read(raw: Raw) -> Answers:
    """Answers as they come, as whoever asks reads them."""
    return {
        source: None if said is None else parse(KINDS[source.kind], said)
        for source, said in raw.items()
    }


def poll(console: Console, raw: Raw, *, now_ms: int, wall_ms: int) -> None:
    console.on_poll(read(raw), now_ms=now_ms, wall_ms=wall_ms)


def looked(*polls: dict[Source, dict[str, Any] | None], shards: int = 1) -> Console:
    """A console after these polls, one a second."""
    console = Console(SiteView(site(shards=shards)))
    for second, answers in enumerate(polls):
        poll(console, answers, now_ms=1000 * second, wall_ms=WALL_MS + 1000 * second)
    return console


def shown(console: Console) -> str:
    """All tables as the terminal shows them."""
    return "\n\n".join("\n".join(lines(table)) for table in console.tables()) + "\n"


def names(console: Console) -> list[tuple[str, str]]:
    return [(alarm.name, alarm.subject) for alarm in console.alarms()]
