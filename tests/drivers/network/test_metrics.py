"""Figures for Prometheus: well-formed text, and rules and board that name what there is."""

import json
import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from appliance.drivers.network.metrics import FIGURES, PREFIX, Said, exposition, serves
from appliance.formats.nvme_health import Health
from appliance.formats.status.edge import EdgeStatus
from appliance.formats.status.process import ProcessFigures
from appliance.formats.status.shipper import ShipperStatus
from appliance.formats.status.status import Status, parse
from tests.statuses import VOLUME, replica_status

DOCS = Path(__file__).parents[3] / "docs" / "prometheus"

DISK = Health(
    warnings=("spare",),
    temperature_c=40,
    spare_percent=4,
    spare_percent_min=10,
    used_percent=7,
    read_bytes=0,
    written_bytes=0,
    power_on_hours=1,
    unsafe_shutdowns=2,
    media_errors=3,
)
REPLICA = replica_status(
    role="backup",
    op=7,
    commit_min=5,
    counters={'a "strange" name\n': 3},
    replica_count=3,
    volume=VOLUME
    | {
        "journal": {"count": 9, "p50_us": 1500, "p99_us": 2000},
        "disk_size": 1000,
        "disk_free": 40,
        "health": {"disks": {"nvme0": asdict(DISK)}},
    },
    process={"rss": 1 << 20},
    clock={"log_ahead_us": 34_556_400_000_000},
)
SHARD = {"attached": True, "cursor": 1, "log_seq": 2, "hole": ""}
SHIPPER = parse(
    ShipperStatus,
    {
        "node": 2,
        "late_s_max": 60,
        "shards": [
            SHARD | {"shard": 0, "late_s": 2.5, "ships": True},
            SHARD | {"shard": 1, "late_s": 0},
        ],
    },
)


def edge_status(**changes: Any) -> EdgeStatus:
    raw = {"connections": 0, "subscriptions": 0, "lagging": 0, "acked": 0, "refused": 0}
    return parse(EdgeStatus, raw | {"ack": {"p50_us": 1, "p99_us": 2}} | changes)


def samples(*said: Said) -> dict[tuple[str, tuple[str, ...]], float]:
    """(name, values of the labels in their order) -> value, as a reader of the text sees them."""
    found = {}
    for family in text_string_to_metric_families(exposition(said).decode()):
        assert family.documentation
        assert family.type in ("gauge", "counter")
        for sample in family.samples:
            labels = tuple(sample.labels[key] for key in sorted(sample.labels))
            assert (sample.name, labels) not in found
            found[sample.name, labels] = sample.value
    return found


def test_a_process_that_is_silent_is_down_and_has_no_figures() -> None:
    told = samples(Said("replica", 0, 0, REPLICA), Said("edge", 0, 1, None))
    assert told["tigerchat_up", ("replica", "0", "0")] == 1
    assert told["tigerchat_up", ("edge", "0", "1")] == 0
    assert not [name for name, _ in told if name.startswith("tigerchat_edge_")]


def test_values_scales_and_names_with_any_letters_arrive() -> None:
    told = samples(Said("replica", 2, 3, REPLICA), Said("shipper", 2, 0, SHIPPER))
    assert told["tigerchat_replica_op", ("2", "3")] == 7
    assert told["tigerchat_replica_serving", ("2", "3")] == 1
    assert told["tigerchat_replica_primary", ("2", "3")] == 0
    assert told["tigerchat_replica_voters", ("2", "3")] == 3
    assert told["tigerchat_replica_disk_free_bytes", ("2", "3")] == 40
    assert told["tigerchat_replica_disk_spare_ratio", ("nvme0", "2", "3")] == 0.04
    assert told["tigerchat_replica_disk_failing", ("nvme0", "2", "3")] == 1
    assert told["tigerchat_replica_log_ahead_seconds", ("2", "3")] == 34_556_400
    assert told["tigerchat_replica_write_p50_seconds", ("2", "3")] == 0.0015
    assert told["tigerchat_replica_events_total", ('a "strange" name\n', "2", "3")] == 3
    assert told["tigerchat_shipper_late_seconds", ("2", "0", "0")] == 2.5
    assert told["tigerchat_shipper_late_seconds", ("2", "0", "1")] == 0
    assert told["tigerchat_shipper_ships", ("2", "0", "0")] == 1


def test_what_is_counted_by_transport_and_reason_has_both_as_labels() -> None:
    edge = edge_status(
        connections_max=500,
        connections_by_transport={"websocket": 3, "http": 0},
        bytes_sent={"websocket": 77},
        refused_by_transport={"tcp": {"node_full": 9}, "websocket": {"node_full": 1}},
        ended_by_transport={"websocket": {"closing": 2}},
    )
    text = exposition([Said("edge", 1, 0, edge)]).decode()
    for line in (
        'tigerchat_edge_connections_max{node="1",number="0"} 500.0',
        'tigerchat_edge_transport_connections{node="1",number="0",transport="http"} 0.0',
        'tigerchat_edge_transport_connections{node="1",number="0",transport="websocket"} 3.0',
        'tigerchat_edge_sent_bytes_total{node="1",number="0",transport="websocket"} 77.0',
        'tigerchat_edge_refusals_total{node="1",number="0",reason="node_full",transport="tcp"} 9.0',
        'tigerchat_edge_ends_total{node="1",number="0",reason="closing",transport="websocket"} 2.0',
    ):
        assert sorted(_labels(line)) in [sorted(_labels(one)) for one in text.splitlines()], line


def _labels(line: str) -> list[str]:
    return re.split(r"[{},]", line)


def test_a_kind_without_a_table_has_the_figures_of_every_process() -> None:
    farm = Status(process=ProcessFigures(rss=1 << 20))
    told = samples(Said("farm", 0, 0, farm), Said("toy", 1, 2, Status()))
    assert told["tigerchat_up", ("farm", "0", "0")] == told["tigerchat_up", ("toy", "1", "2")] == 1
    assert told["tigerchat_farm_resident_bytes", ("0", "0")] == 1 << 20
    assert told["tigerchat_toy_seconds_late_total", ("1", "2")] == 0


def test_only_who_is_normal_and_healthy_serves() -> None:
    assert serves(REPLICA) and serves(edge_status()) and serves(SHIPPER)
    assert not serves(replica_status(status="recovering"))
    assert not serves(edge_status(health="the replica is not attached"))
    assert not serves(None)


def test_a_standby_and_who_was_removed_have_no_vote() -> None:
    votes = {}
    for node, role in enumerate(("primary", "backup", "standby", "removed")):
        told = samples(Said("replica", node, 0, replica_status(role=role)))
        votes[role] = told["tigerchat_replica_votes", (str(node), "0")]
    assert votes == {"primary": 1, "backup": 1, "standby": 0, "removed": 0}


def metric_names() -> set[str]:
    names = {PREFIX + "up"}
    for kind, figures in FIGURES.items():
        for figure in figures:
            end = "_total" if figure.kind.__name__.startswith("Counter") else ""
            names.add(f"{PREFIX}{kind}_{figure.name}{end}")
    return names


def test_rules_and_board_name_only_metrics_that_there_are() -> None:
    for name in ("alerts.yaml", "board.json"):
        text = (DOCS / name).read_text()
        used = set(re.findall(r"\btigerchat_\w+", text))
        assert used and used <= metric_names(), used - metric_names()
    assert len(json.loads((DOCS / "board.json").read_text())["panels"]) == 12
