"""The picture of docs/performance.md: rates of all products, a panel for each depth and audience.

Rates of a single message and of two thousand lie far apart: each panel has a scale of its own.
"""

from html import escape
from typing import Any

from appliance.reports.plot import short, ticks

Row = dict[str, Any]
WIDTH, PANEL_WIDTH, PANEL_HEIGHT, COLUMNS = 900, 300, 210, 3
LEFT, TOP, BOTTOM, HEAD = 52, 34, 22, 62  # of a panel; HEAD stands above all
LEGEND_STEP = 172
TITLE = "Three nodes of each on one machine, medians of the rounds that nothing disturbed"
COLOURS = ("#d9480f", "#1c7ed6", "#868e96", "#2b8a3e", "#9c36b5", "#e8a200")
PAPER, INK, GRID = "#ffffff", "#343a40", "#dee2e6"


def picture(found: list[Row]) -> str:
    """SVG that stands alone. A product whose rounds were all disturbed has no bar in that panel,
    but a dash."""
    rows = [row for row in found if row["kind"] in ("acknowledged", "fan_out")]
    products = list(dict.fromkeys(row["product"] for row in rows))
    panels: dict[str, dict[str, int]] = {}
    for row in rows:
        if row["kind"] == "acknowledged":
            title = f"{row['in_flight']:,} in flight, messages/s"
        else:
            title = f"1 to {row['listeners']:,} listeners, deliveries/s"
        rates = panels.setdefault(title, {})
        if row["rounds"]:
            rates[row["product"]] = row["per_s"]
    height = HEAD + PANEL_HEIGHT * -(-len(panels) // COLUMNS)
    box = f'viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
    font = f'font-family="sans-serif" font-size="11" fill="{INK}"'
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {box} {font} role="img">',
        f'<rect width="{WIDTH}" height="{height}" fill="{PAPER}"/>',
        f'<text x="12" y="20" font-size="14" font-weight="bold">{TITLE}</text>',
    ]
    step = min(LEGEND_STEP, (WIDTH - 24) // max(1, len(products)))
    for place, product in enumerate(products):
        x = 12 + place * step
        out.append(f'<rect x="{x}" y="33" width="10" height="10" fill="{_colour(place)}"/>')
        out.append(f'<text x="{x + 15}" y="42">{escape(product)}</text>')
    for place, (title, rates) in enumerate(panels.items()):
        x, y = place % COLUMNS * PANEL_WIDTH, HEAD + place // COLUMNS * PANEL_HEIGHT
        out += [f'<g transform="translate({x} {y})">', *_panel(title, rates, products), "</g>"]
    return "\n".join([*out, "</svg>"]) + "\n"


def _colour(place: int) -> str:
    return COLOURS[place % len(COLOURS)]


def _panel(title: str, rates: dict[str, int], products: list[str]) -> list[str]:
    grid = ticks(max(rates.values(), default=0))
    base, room = PANEL_HEIGHT - BOTTOM, PANEL_HEIGHT - BOTTOM - TOP
    out = [f'<text x="{LEFT}" y="16" font-weight="bold">{escape(title)}</text>']
    for value in grid:
        y = base - value / grid[-1] * room
        out.append(
            f'<line x1="{LEFT}" x2="{PANEL_WIDTH - 10}" y1="{y:.1f}" y2="{y:.1f}" stroke="{GRID}"/>'
            f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{short(value)}</text>'
        )
    step = (PANEL_WIDTH - LEFT - 10) / max(1, len(products))
    for place, product in enumerate(products):
        left = LEFT + place * step
        if product not in rates:
            out.append(
                f'<text x="{left + step / 2:.1f}" y="{base - 4}" text-anchor="middle">–</text>'
            )
            continue
        rate = rates[product]
        tall = max(1.0, rate / grid[-1] * room)
        out.append(
            f'<rect class="bar" x="{left + step * 0.12:.1f}" y="{base - tall:.1f}" '
            f'width="{step * 0.76:.1f}" height="{tall:.1f}" fill="{_colour(place)}">'
            f"<title>{escape(product)}: {rate:,}</title></rect>"
        )
        out.append(
            f'<text x="{left + step / 2:.1f}" y="{base - tall - 4:.1f}" '
            f'text-anchor="middle">{short(rate)}</text>'
        )
    return out
