"""What all rounds say together: medians and quartiles, ratios to ours, bars, a table, a picture."""

import statistics
from typing import Any

Row = dict[str, Any]
OURS, ETCD = "TigerChat", "etcd 3.4"
# Beside etcd: (in flight, rate at least, p50 at most, whether p99 must be lower).
BARS = (
    (1, 0.65, 1.6, False),
    (16, 1.15, None, True),
    (256, 1.9, None, True),
    (2048, 1.8, None, True),
)
CPU_US_MAX = (256, 45.0)  # in flight, µs a message of all nodes
FAN_OUT_MIN = {100: 500_000, 1000: 1_200_000}  # deliveries a second by listeners
WIDTH, HEIGHT, LEFT, BOTTOM = 860, 330, 60, 40
COLOURS = ("#d9480f", "#1c7ed6", "#868e96", "#2b8a3e")


def summary(rows: list[Row]) -> list[Row]:
    """One row for each product and kind of round: medians, and quartiles of the rate."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        if row["kind"] in ("acknowledged", "fan_out"):
            key = row["kind"], row["product"], row.get("in_flight"), row.get("listeners")
            groups.setdefault(key, []).append(row)
    flushes = {
        (row["product"], row["in_flight"]): row["for_a_message"]
        for row in rows
        if row["kind"] == "flushes"
    }
    found = []
    for (kind, product, depth, listeners), of in groups.items():
        rates = sorted(row["per_s"] for row in of)
        quartiles = statistics.quantiles(rates, n=4) if len(rates) > 1 else [rates[0]] * 3
        one: Row = {
            "kind": kind,
            "product": product,
            "rounds": len(of),
            "per_s": round(statistics.median(rates)),
            "quartiles": [round(quartiles[0]), round(quartiles[2])],
        }
        if kind == "acknowledged":
            one["in_flight"] = depth
            for name in ("p50_ms", "p99_ms", "cpu_us"):
                one[name] = round(statistics.median(row[name] for row in of), 3)
            one["flushes"] = flushes.get((product, depth))
        else:
            one["listeners"] = listeners
        found.append(one)
    for one in found:
        ours = find(found, one, OURS)
        one["ratio"] = round(one["per_s"] / ours["per_s"], 3) if ours else None
    return found


def find(found: list[Row], like: Row, product: str) -> Row | None:
    """The row of `product` for the same kind of round."""
    names = ("kind", "in_flight", "listeners")
    return next(
        (
            row
            for row in found
            if row["product"] == product and all(row.get(n) == like.get(n) for n in names)
        ),
        None,
    )


def missed(found: list[Row]) -> list[str]:
    """Bars that these medians do not reach, in words."""
    out = []
    for depth, rate, p50, p99_lower in BARS:
        like = {"kind": "acknowledged", "in_flight": depth}
        ours, etcd = find(found, like, OURS), find(found, like, ETCD)
        if ours is None or etcd is None:
            out.append(f"nothing was measured with {depth} in flight")
            continue
        if ours["per_s"] < rate * etcd["per_s"]:
            part = ours["per_s"] / etcd["per_s"]
            out.append(f"{depth} in flight: {part:.2f} of etcd's rate, at least {rate}")
        if p50 is not None and ours["p50_ms"] > p50 * etcd["p50_ms"]:
            part = ours["p50_ms"] / etcd["p50_ms"]
            out.append(f"{depth} in flight: p50 {part:.2f} of etcd's, at most {p50}")
        if p99_lower and ours["p99_ms"] >= etcd["p99_ms"]:
            out.append(f"{depth} in flight: p99 {ours['p99_ms']} ms, etcd's {etcd['p99_ms']}")
        if depth == CPU_US_MAX[0] and ours["cpu_us"] > CPU_US_MAX[1]:
            out.append(f"{depth} in flight: {ours['cpu_us']} µs of CPU, at most {CPU_US_MAX[1]}")
    for listeners, least in FAN_OUT_MIN.items():
        ours = find(found, {"kind": "fan_out", "listeners": listeners}, OURS)
        if ours is None or ours["per_s"] < least:
            rate = ours["per_s"] if ours else 0
            out.append(f"1 to {listeners}: {rate} deliveries/s, at least {least}")
    return out


def text(found: list[Row]) -> str:
    """The table of docs/performance.md."""
    heads = ("", "in flight", "messages/s (quartiles)", "p50 ms", "p99 ms", "CPU µs", "flushes")
    lines = ["| " + " | ".join((*heads, "beside ours")) + " |", "|---" * (len(heads) + 1) + "|"]
    for row in sorted(found, key=lambda row: (row["kind"], row.get("in_flight", 0))):
        low, high = row["quartiles"]
        rate = f"{row['per_s']:,} ({low:,} to {high:,})"
        ratio = "" if row["ratio"] is None else f"{row['ratio']:.2f}"
        if row["kind"] == "acknowledged":
            cells = [row["in_flight"], rate, row["p50_ms"], row["p99_ms"], row["cpu_us"]]
            cells.append("" if row["flushes"] is None else row["flushes"])
        else:
            cells = [f"1 to {row['listeners']}", f"{rate} delivered", "", "", "", ""]
        lines.append("| " + " | ".join(map(str, [row["product"], *cells, ratio])) + " |")
    return "\n".join(lines)


def picture(found: list[Row]) -> str:
    """Messages a second by depth as bars, SVG."""
    rows = [row for row in found if row["kind"] == "acknowledged"]
    products = list(dict.fromkeys(row["product"] for row in rows))
    depths = sorted({row["in_flight"] for row in rows})
    most = max(row["per_s"] for row in rows)
    group = (WIDTH - LEFT) / len(depths)
    bar = group / (len(products) + 1)
    scale = (HEIGHT - BOTTOM - 40) / most
    title = "Acknowledged messages a second, three nodes, by messages in flight"
    box = f'viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12"'
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {box}>',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
        f'<text x="60" y="18" font-size="14">{title}</text>',
    ]
    base = HEIGHT - BOTTOM
    for at, product in enumerate(products):
        x = LEFT + 10 + at * 190
        out.append(f'<rect x="{x}" y="27" width="10" height="10" fill="{COLOURS[at % 4]}"/>')
        out.append(f'<text x="{x + 15}" y="36">{product}</text>')
    for number, depth in enumerate(depths):
        x = LEFT + number * group
        out.append(
            f'<text x="{x + group / 2:.0f}" y="{base + 20}" text-anchor="middle">{depth}</text>'
        )
        for at, product in enumerate(products):
            row = next(r for r in rows if (r["product"], r["in_flight"]) == (product, depth))
            height = max(1.0, row["per_s"] * scale)
            left = x + bar * (at + 0.5)
            out.append(
                f'<rect x="{left:.1f}" y="{base - height:.1f}" width="{bar * 0.9:.1f}" '
                f'height="{height:.1f}" fill="{COLOURS[at % 4]}"/>'
            )
            out.append(
                f'<text x="{left + bar * 0.45:.1f}" y="{base - height - 4:.1f}" '
                f'text-anchor="middle" font-size="10">{row["per_s"]:,}</text>'
            )
    out.append(f'<line x1="{LEFT}" y1="{base}" x2="{WIDTH}" y2="{base}" stroke="#495057"/></svg>')
    return "\n".join(out) + "\n"
