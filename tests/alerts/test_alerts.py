"""The rules for alerts, put before Prometheus' own promtool: what fires in which world."""

import re
import subprocess
from pathlib import Path

import pytest

from appliance.drivers.network.metrics import FIGURES, PREFIX
from tools import promtool

RULES = Path(__file__).parents[2] / "docs" / "prometheus" / "alerts.yaml"
WORLDS = Path(__file__).with_name("worlds.yaml")
WORLDS_MIN = 15
ALERT = re.compile(r"^      - alert: (\w+)\n        expr: (?:>-\n(?: {10}.*\n)+|.*\n)", re.M)
NEVER = "        expr: vector(0) > 1\n"
NAMES = ALERT.findall(RULES.read_text())

# A rule as it could have been, or was: (alert, what it says now, what it said then, what the world
# is called, or begins, that finds it)
WEAKER = [
    ("NoQuorum", "serving * tigerchat_replica_votes", "serving", "standbys"),
    ("NoQuorum", "<= max by", "<= min by", "standbys"),
    ("NoQuorum", "<= max by (shard) (tigerchat_replica_voters)",
     "< count by (shard) (tigerchat_replica_serving)", "two of three machines"),
    ("NoQuorum", "<= max by", "< 0 * max by", "the replicas of two"),
    ("NoQuorum", "by (shard)", "by (job)", "one of two shards"),
    ("NoQuorum", "(max by (shard, node) (", "((", "one node is asked through two"),
    ("NoQuorum", "for: 10s", "for: 0s", "a restart"),
    ("NodeSilent", 'up{job="tigerchat"} == 0', 'absent(up{job="tigerchat"})', "every machine"),
    ("NodeSilent", "for: 30s", "for: 0s", "a restart"),
    ("NothingSeen", "absent(tigerchat_up)", 'absent(up{job="tigerchat"})', "every machine"),
    ("ProcessDown", "tigerchat_up == 0", 'tigerchat_up{kind="replica"} == 0', "the replica and"),
    ("ProcessDown", "for: 30s", "for: 0s", "a restart"),
    ("EdgeNotServing", "for: 30s", "for: 0s", "a restart"),
    ("Alarm", "for: 1m", "for: 0s", "a restart"),
    ("Alarm", "|ship_late", "", "the shipper that ships"),
    ("ShipLate", 'tigerchat_console_alarms{name="ship_late"} > 0',
     "min by (severity) (tigerchat_shipper_late_seconds) > 1800", "the shipper that ships"),
    ("ShipLate", 'tigerchat_console_alarms{name="ship_late"} > 0',
     "max by (severity) (tigerchat_shipper_late_seconds) > 1800", "a shipper that does not"),
    ("Bad", "no_quorum|", "", "every replica"),
    ("Bad", "replica_down|", "", "the replica and"),
]  # fmt: skip


def told(folder: Path, rules: str, world: str = "") -> tuple[int, str]:
    """Exit code and words of promtool about such rules in all worlds, or in the one so called."""
    head, *worlds = re.split(r"(?m)^(?=  - name: )", WORLDS.read_text())
    (looks,) = re.findall(r"&firing (.*)", worlds[0])
    chosen = [each for each in worlds if each.startswith(f"  - name: {world}")]
    assert len(chosen) == (1 if world else len(worlds))
    text = head + "".join(chosen).replace("&firing ", "").replace("*firing", f"'{looks}'")
    (folder / RULES.name).write_text(rules)
    (folder / WORLDS.name).write_text(text)
    command = [promtool.PROMTOOL, "test", "rules", WORLDS.name]
    done = subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def weaker(alert: str, now: str, then: str) -> str:
    """The rules with one of them so."""
    text = RULES.read_text()
    begin = text.index(f"- alert: TigerChat{alert}\n")
    rest = text[begin + 1 :].find("- alert: ")
    end = begin + 1 + rest if rest >= 0 else len(text)
    assert now in text[begin:end]
    return text[:begin] + text[begin:end].replace(now, then) + text[end:]


def test_prometheus_accepts_the_rules() -> None:
    command = [promtool.PROMTOOL, "check", "rules", RULES]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(NAMES)} rules found" in done.stdout


def test_in_every_world_of_dead_machines_fires_what_should_and_nothing_else(
    tmp_path: Path,
) -> None:
    assert WORLDS.read_text().count("\n  - name: ") >= WORLDS_MIN
    code, words = told(tmp_path, RULES.read_text())
    assert code == 0 and "SUCCESS" in words, words


def test_each_rule_is_missed_in_some_world_when_none_fires(tmp_path: Path) -> None:
    rules, count = ALERT.subn(rf"      - alert: \1\n{NEVER}", RULES.read_text())
    code, words = told(tmp_path, rules)
    assert code == 1 and count == len(NAMES)
    assert set(re.findall(r'alertname="(\w+)"', words)) == set(NAMES)


@pytest.mark.parametrize(("alert", "now", "then", "world"), WEAKER)
def test_a_weaker_rule_is_found_in_the_world_that_is_about_it(
    tmp_path: Path, alert: str, now: str, then: str, world: str
) -> None:
    code, words = told(tmp_path, RULES.read_text(), world)
    assert code == 0, words
    code, words = told(tmp_path, weaker(alert, now, then), world)
    assert code == 1 and "FAILED" in words, words


def test_the_worlds_are_of_series_that_consoles_have() -> None:
    labels = {PREFIX + "up": {"kind", "node", "number"}}
    for kind, figures in FIGURES.items():
        for figure in figures:
            end = "_total" if figure.kind.__name__.startswith("Counter") else ""
            number = "shard" if kind == "replica" else "number"
            labels[f"{PREFIX}{kind}_{figure.name}{end}"] = {"node", number, *figure.labels}
    series = re.findall(r"series: '(tigerchat_\w+){(.*?)}'", WORLDS.read_text())
    assert len(series) > 100
    for name, pairs in series:
        given = set(re.findall(r"(\w+)=", pairs)) - {"instance"}  # which Prometheus adds
        assert given in (labels[name], labels[name] - {"name"}), f"{name}{{{pairs}}}"


@pytest.mark.parametrize("package", [b"", b"another package", b"\0" * 4096])
@pytest.mark.parametrize("machine", promtool.DIGESTS)
def test_a_package_of_other_bytes_is_not_used(package: bytes, machine: str) -> None:
    with pytest.raises(promtool.PromtoolError, match="other bytes"):
        promtool.check(package, machine)
    with pytest.raises(promtool.PromtoolError, match="no package is known here for m68k"):
        promtool.check(package, "m68k")
