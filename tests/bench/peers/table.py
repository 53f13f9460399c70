"""What all rounds say together: medians and quartiles, ratios, bars, and the table of them."""

import statistics
from collections.abc import Iterable
from typing import Any

from tests.bench.peers.foreign import that_count
from tests.bench.peers.trees import OURS

Row = dict[str, Any]
ETCD = "etcd 3.4"
# Beside etcd, the rate at least so many times: by messages in flight, by listeners.
RATE_MIN = {1: 0.42, 16: 0.95, 256: 1.6, 2048: 1.7}
FAN_OUT_MIN = {100: 2.3, 1000: 4.6}
# Beside another checkout of this program.
TREE_RATE_MIN, TREE_CPU_MAX = 1.0, 1.0
FIGURES = ("per_s", "p50_ms", "p99_ms", "cpu_us", "cpu_percent")
KEY = ("kind", "product", "in_flight", "listeners")
KINDS = ("acknowledged", "fan_out", "idle")


def summary(rows: list[Row]) -> list[Row]:
    """One row for each product and kind of round: medians over the rounds that nothing disturbed,
    quartiles of the rate, and how many were disturbed."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        if row["kind"] in KINDS:
            groups.setdefault(tuple(row.get(name) for name in KEY), []).append(row)
    flushes = {
        (row["product"], row["in_flight"]): row["for_a_message"]
        for row in rows
        if row["kind"] == "flushes"
    }
    found = []
    for key, every in groups.items():
        one = {name: value for name, value in zip(KEY, key, strict=True) if value is not None}
        counted = that_count(every)
        one |= {"rounds": len(counted), "disturbed": len(every) - len(counted)}
        if counted:
            one |= _medians(counted)
        if one["kind"] == "acknowledged":
            one["flushes"] = flushes.get((one["product"], one["in_flight"]))
        found.append(one)
    return found


def _medians(counted: list[Row]) -> Row:
    figures: Row = {}
    for name in FIGURES:
        values = sorted(row[name] for row in counted if name in row)
        if values:
            figures[name] = round(statistics.median(values), 3)
        if values and name == "per_s":
            low, _, high = statistics.quantiles(values, n=4) if values[1:] else values * 3
            figures |= {"per_s": round(figures["per_s"]), "quartiles": [round(low), round(high)]}
    return figures


def find(found: list[Row], like: Row, product: str) -> Row | None:
    """The row of `product` for the same kind of round, if it has figures."""
    names = ("kind", "in_flight", "listeners")
    return next(
        (
            row
            for row in found
            if row["product"] == product
            and row["rounds"]
            and all(row.get(name) == like.get(name) for name in names)
        ),
        None,
    )


def ratio(found: list[Row], like: Row, peer: str, figure: str) -> float | None:
    """Ours beside a peer's; None where either was not measured."""
    ours, theirs = find(found, like, OURS), find(found, like, peer)
    if ours is None or theirs is None or not theirs.get(figure):
        return None
    return float(ours[figure] / theirs[figure])


def trees_of(found: list[Row]) -> list[str]:
    """Names of the other checkouts."""
    names = dict.fromkeys(row["product"] for row in found)
    return [name for name in names if name.startswith(f"{OURS} ")]


def _likes() -> Iterable[tuple[Row, str, float]]:
    """(kind of round, its name, the bar beside etcd)."""
    for depth, least in RATE_MIN.items():
        yield {"kind": "acknowledged", "in_flight": depth}, f"{depth} in flight", least
    for listeners, least in FAN_OUT_MIN.items():
        yield {"kind": "fan_out", "listeners": listeners}, f"1 to {listeners}", least


def bars(found: list[Row]) -> list[Row]:
    """A row for each bar: what was reached, and whether it holds; `ratio` None: not measured."""
    out: list[Row] = []

    def add(what: str, peer: str, value: float | None, bar: str, held: bool) -> None:
        out.append({"what": what, "peer": peer, "ratio": value, "bar": bar, "held": held})

    for like, name, least in _likes():
        value = ratio(found, like, ETCD, "per_s")
        held = value is not None and value >= least
        add(f"{name}: rate", ETCD, value, f"at least {least}", held)
        for tree in trees_of(found):
            value = ratio(found, like, tree, "per_s")
            held = value is not None and value >= TREE_RATE_MIN
            add(f"{name}: rate", tree, value, f"at least {TREE_RATE_MIN}", held)
            value = ratio(found, like, tree, "cpu_us")
            held = value is not None and value <= TREE_CPU_MAX
            add(f"{name}: CPU", tree, value, f"at most {TREE_CPU_MAX}", held)
    return sorted(out, key=lambda row: row["peer"] != ETCD)


def missed(found: list[Row]) -> list[str]:
    """Bars that these medians do not reach, in words."""
    out = []
    for row in bars(found):
        if row["ratio"] is None:
            out.append(f"{row['what']} beside {row['peer']}: nothing was measured undisturbed")
        elif not row["held"]:
            out.append(f"{row['what']} is {row['ratio']:.2f} of {row['peer']}'s, {row['bar']}")
    return out


# --- for people -----------------------------------------------------------------------------------


def text(found: list[Row]) -> str:
    """The tables of docs/performance.md: of figures, of bars."""
    return f"{figures_table(found)}\n\n{bars_table(found)}"


def figures_table(found: list[Row]) -> str:
    heads = ("", "in flight", "messages/s (quartiles)", "p50 ms", "p99 ms", "CPU µs", "flushes")
    lines = ["| " + " | ".join((*heads, "ours beside it")) + " |", "|---" * 8 + "|"]
    order = {kind: place for place, kind in enumerate(KINDS)}

    def standing(row: Row) -> tuple[int, int]:
        return order[row["kind"]], row.get("in_flight", row.get("listeners", 0))

    for row in sorted(found, key=standing):
        beside = None
        if row["product"] != OURS and row["kind"] != "idle":
            beside = ratio(found, row, row["product"], "per_s")
        cells = [row["product"], *_cells(row), "" if beside is None else f"{beside:.2f}"]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


def _cells(row: Row) -> list[Any]:
    """In flight, rate, p50, p99, CPU, flushes."""
    if row["kind"] == "idle":
        used = f"{row['cpu_percent']} % of a core" if row["rounds"] else _disturbed(row)
        return ["idle", "", "", "", used, ""]
    what = row.get("in_flight") or f"1 to {row['listeners']}"
    flushes = "" if row.get("flushes") is None else row["flushes"]
    if not row["rounds"]:
        return [what, _disturbed(row), "", "", "", flushes]
    low, high = row["quartiles"]
    unit = " delivered" if row["kind"] == "fan_out" else ""
    rate = f"{row['per_s']:,} ({low:,} to {high:,}){unit}"
    return [what, rate, row.get("p50_ms", ""), row.get("p99_ms", ""), row["cpu_us"], flushes]


def _disturbed(row: Row) -> str:
    return f"all {row['disturbed']} disturbed"


def bars_table(found: list[Row]) -> str:
    lines = ["| ours beside | what | ratio | bar | |", "|---|---|---|---|---|"]
    for row in bars(found):
        value = "not measured" if row["ratio"] is None else f"{row['ratio']:.2f}"
        held = "held" if row["held"] else "**missed**"
        lines.append(f"| {row['peer']} | {row['what']} | {value} | {row['bar']} | {held} |")
    return "\n".join(lines)
