"""Plots as SVG, drawn here: no script, no library, and colours of the page, light or dark.

A plot is a text that goes into HTML. Its colours are classes of the page's style sheet; each mark
carries a title that browsers show when pointed at.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from html import escape
from typing import NamedTuple

WIDTH = 720
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 10, 12, 24


class Point(NamedTuple):
    """A moment and a value."""

    time: datetime
    value: float


def short(value: float) -> str:
    """A number in few characters: 950, 12.3k, 4.5M."""
    for size, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            text = f"{value / size:.1f}" if abs(value) < 100 * size else f"{value / size:.0f}"
            return f"{text.removesuffix('.0')}{letter}"
    return f"{value:.0f}" if value == int(value) else f"{value:.1f}"


def size_text(size: float) -> str:
    """Bytes in few characters."""
    for unit, letter in ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"{size / unit:.1f}".removesuffix(".0") + f" {letter}"
    return f"{size:.0f} B"


def duration_text(seconds: float) -> str:
    """A time span in few characters."""
    for unit, letter in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= unit:
            return f"{seconds / unit:.1f}".removesuffix(".0") + f" {letter}"
    return f"{seconds:.1f}".removesuffix(".0") + " s"


def size_ticks(largest: float) -> list[float]:
    """Round numbers of the largest binary unit that fits."""
    unit = 1 << 10 * max(0, min(4, int(math.log2(max(largest, 1)) // 10)))
    return [tick * unit for tick in ticks(largest / unit)]


def ticks(largest: float, wanted: int = 4) -> list[float]:
    """Round values from 0 to at least `largest`."""
    if largest <= 0:
        return [0.0, 1.0]
    raw = largest / wanted
    power = 10 ** math.floor(math.log10(raw))
    step = next(f * power for f in (1, 2, 2.5, 5, 10) if f * power >= raw)
    if largest >= 1:
        step = max(1.0, math.ceil(step))
    return [step * i for i in range(math.ceil(largest / step) + 1)]


def _of(number: str, noun: str) -> str:
    """ "1 message", "12.3k messages"; a number alone where it names its unit."""
    return f"{number} {noun}{'' if number == '1' else 's'}" if noun else number


def with_gaps(points: Sequence[Point], known: timedelta, step: timedelta) -> list[Point]:
    """With the silence between: a value is known for so long, then there is nothing until a step
    before the next one. At most two points for each gap, however long it is."""
    found: list[Point] = []
    for point in points:
        if found and point.time - found[-1].time > known:
            found.append(Point(found[-1].time + known, 0))
            if point.time - step > found[-1].time:
                found.append(Point(point.time - step, 0))
        found.append(point)
    return found


def area(
    points: Sequence[Point],
    *,
    height: int = 220,
    noun: str = "message",
    ahead: Sequence[Point] = (),
    text: Callable[[float], str] = short,
    limit: float = 0,
) -> str:
    """A filled line over time; `ahead` goes on dashed, `limit` is a line across."""
    if not points:
        return empty(height)
    every = [*points, *ahead]
    start, end = every[0].time, every[-1].time
    if start == end:  # one point stands in the middle
        start, end = start - timedelta(minutes=30), end + timedelta(minutes=30)
    largest = max(max(p.value for p in every), limit)
    grid = size_ticks(largest) if text is size_text else ticks(largest)
    x, y = _scales(start, end, grid[-1], height)
    line = " ".join(f"{x(p.time):.1f},{y(p.value):.1f}" for p in points)
    base = y(0)
    body = [_grid(grid, y, text), _time_axis(start, end, x, height)]
    body.append(
        f'<polygon class="fill" points="{x(points[0].time):.1f},{base:.1f} {line} '
        f'{x(points[-1].time):.1f},{base:.1f}"/>'
    )
    body.append(f'<polyline class="line" points="{line}"/>')
    if len(points) == 1:  # a line of one point draws nothing
        only = points[0]
        body.append(f'<circle class="dot" cx="{x(only.time):.1f}" cy="{y(only.value):.1f}" r="4"/>')
    if ahead:
        dashed = " ".join(f"{x(p.time):.1f},{y(p.value):.1f}" for p in (points[-1], *ahead))
        body.append(f'<polyline class="line ahead" points="{dashed}"/>')
    if limit:
        body.append(
            f'<line class="limit" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y(limit):.1f}" '
            f'y2="{y(limit):.1f}"/>'
        )
    width = max(2.0, (WIDTH - _LEFT - _RIGHT) / len(points))
    for p in points:
        when = p.time.strftime("%a %d %b %Y %H:%M").replace(" 00:00", "")
        body.append(
            f'<rect class="touch" x="{x(p.time) - width / 2:.1f}" y="{_TOP}" '
            f'width="{width:.1f}" height="{height - _TOP - _BOTTOM}">'
            f"<title>{when}: {_of(text(p.value), noun)}</title></rect>"
        )
    return _svg(height, body)


def lines(series: Mapping[str, Sequence[Point]], *, height: int = 220) -> str:
    """Several lines over time, each in a colour of its own, with a legend above."""
    every = [point for points in series.values() for point in points]
    if not every:
        return empty(height)
    start = min(p.time for p in every)
    end = max(max(p.time for p in every), start + timedelta(days=1))
    grid = ticks(max(p.value for p in every))
    x, y = _scales(start, end, grid[-1], height)
    body = [_grid(grid, y, short), _time_axis(start, end, x, height)]
    for i, (name, points) in enumerate(series.items()):
        path = " ".join(f"{x(p.time):.1f},{y(p.value):.1f}" for p in points)
        body.append(f'<polyline class="line c{i}" points="{path}"/>')
        body += [
            f'<circle class="dot c{i}" cx="{x(p.time):.1f}" cy="{y(p.value):.1f}" r="2.6">'
            f"<title>{p.time:%a %d %b}: {short(p.value)} {escape(name)}</title></circle>"
            for p in points
        ]
    legend = "".join(
        f'<span><i class="c{i}"></i>{escape(name)}</span>' for i, name in enumerate(series)
    )
    return f'<div class="legend">{legend}</div>{_svg(height, body)}'


def columns(rows: Sequence[tuple[str, float]], *, height: int = 200, noun: str = "message") -> str:
    """Upright bars with a name below each."""
    if not rows:
        return empty(height)
    grid = ticks(max(value for _, value in rows))
    width = (WIDTH - _LEFT - _RIGHT) / len(rows)

    def y(value: float) -> float:
        return height - _BOTTOM - value / grid[-1] * (height - _TOP - _BOTTOM)

    body = [_grid(grid, y, short)]
    for i, (name, value) in enumerate(rows):
        left = _LEFT + i * width
        tall = max(height - _BOTTOM - y(value), 1.5 if value else 0)
        body.append(
            f'<rect class="bar" x="{left + width * 0.14:.1f}" '
            f'y="{height - _BOTTOM - tall:.1f}" width="{width * 0.72:.1f}" '
            f'height="{tall:.1f}" rx="3"><title>{escape(name)}: '
            f"{_of(short(value), noun)}</title></rect>"
        )
        body.append(
            f'<text class="axis" x="{left + width / 2:.1f}" y="{height - 7}" '
            f'text-anchor="middle">{escape(name)}</text>'
        )
    return _svg(height, body)


def ranking(rows: Sequence[tuple[str, float, str]]) -> str:
    """Lying bars: (name, value, what is written behind it), the largest first."""
    if not rows:
        return empty(80)
    largest = max(value for _, value, _ in rows) or 1
    items = "".join(
        f'<li><span class="name" title="{escape(name)}">{escape(name)}</span>'
        f'<span class="track"><b style="width:{100 * value / largest:.1f}%"></b></span>'
        f'<span class="value">{escape(behind)}</span></li>'
        for name, value, behind in rows
    )
    return f'<ol class="ranking">{items}</ol>'


def week(cells: dict[tuple[int, int], float]) -> str:
    """Seven rows of 24 hours, darker where there is more; keys are (weekday from 1, hour)."""
    if not cells:
        return empty(190)
    largest = max(cells.values())
    cell_width, cell_height = (WIDTH - _LEFT - _RIGHT) / 24, 24
    body = []
    for day, name in enumerate(("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"), 1):
        top = 6 + (day - 1) * cell_height
        body.append(
            f'<text class="axis" x="{_LEFT - 10}" y="{top + 16}" text-anchor="end">{name}</text>'
        )
        for hour in range(24):
            value = cells.get((day, hour), 0)
            strength = 0.06 if value == 0 else 0.16 + 0.84 * value / largest
            body.append(
                f'<rect class="cell" x="{_LEFT + hour * cell_width + 1:.1f}" y="{top + 1}" '
                f'width="{cell_width - 2:.1f}" height="{cell_height - 2}" rx="3" '
                f'fill-opacity="{strength:.2f}"><title>{name} {hour:02d}:00: '
                f"{_of(short(value), 'message')}</title></rect>"
            )
    bottom = 6 + 7 * cell_height
    body += [
        f'<text class="axis" x="{_LEFT + (hour + 0.5) * cell_width:.1f}" y="{bottom + 15}" '
        f'text-anchor="middle">{hour:02d}</text>'
        for hour in range(0, 24, 3)
    ]
    return _svg(bottom + 22, body)


def empty(height: int) -> str:
    """In place of a plot that has nothing to show."""
    return f'<div class="nothing" style="min-height:{height // 2}px">nothing to show yet</div>'


def _svg(height: int, body: Sequence[str]) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" '
        f'preserveAspectRatio="xMidYMid meet">{"".join(body)}</svg>'
    )


def _scales(
    start: datetime,
    end: datetime,
    largest: float,
    height: int,
) -> tuple[Callable[[datetime], float], Callable[[float], float]]:
    span = (end - start).total_seconds()

    def x(time: datetime) -> float:
        return _LEFT + (time - start).total_seconds() / span * (WIDTH - _LEFT - _RIGHT)

    def y(value: float) -> float:
        return height - _BOTTOM - value / largest * (height - _TOP - _BOTTOM)

    return x, y


def _grid(
    values: Sequence[float], y: Callable[[float], float], text: Callable[[float], str]
) -> str:
    return "".join(
        f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y(v):.1f}" y2="{y(v):.1f}"/>'
        f'<text class="axis" x="{_LEFT - 8}" y="{y(v) + 4:.1f}" text-anchor="end">{text(v)}</text>'
        for v in values
    )


def _time_axis(start: datetime, end: datetime, x: Callable[[datetime], float], height: int) -> str:
    """Marks at whole hours, days or months, about eight of them."""
    hours = (end - start).total_seconds() / 3600
    if hours <= 48:
        step = next(s for s in (1, 2, 3, 6, 12) if hours / s <= 9)
        form = "%H:%M"
    else:
        days = next(d for d in (1, 2, 5, 7, 14, 30, 60, 90, 180, 365, 3650) if hours / 24 / d <= 9)
        step, form = 24 * days, "%d %b" if hours < 24 * 700 else "%b %Y"
    day = datetime(start.year, start.month, start.day, tzinfo=UTC)
    out = []
    moment = day
    while moment <= end:
        if moment >= start:
            out.append(
                f'<text class="axis" x="{min(x(moment), WIDTH - 24):.1f}" '
                f'y="{height - 7}" text-anchor="middle">{moment.strftime(form)}</text>'
            )
        moment += timedelta(hours=step)
    return "".join(out)
