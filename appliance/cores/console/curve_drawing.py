"""The curves as a page draws them: of an hour or a day, each in so many points."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from appliance.cores.console.curves import Curves, summed_up
from appliance.formats.curves import DAY_STEPS, HOUR_S, STEP_S, Curve, Figure

POINTS = 240  # of each of all curves; of those of one subject each row is a point


class Shown(NamedTuple):
    """How a figure is called, and in what it is told."""

    subject: str  # {node} and {number} as of the curve
    title: str
    unit: str


_EDGE, _DISK = "{node} edge {number}", "{node} shard {number} disk"
_SHIPPER = "{node} shard {number} shipper"
SHOWN: dict[Figure, Shown] = {
    Figure.RECORDS: Shown("shard {number}", "messages committed", "/s"),
    Figure.COMMIT_MS: Shown("shard {number}", "commit p99", "ms"),
    Figure.CONNECTIONS: Shown(_EDGE, "connections", ""),
    Figure.RECEIVED: Shown(_EDGE, "messages in", "/s"),
    Figure.SENT: Shown(_EDGE, "messages out", "/s"),
    Figure.FLUSH_MS: Shown(_DISK, "flush p99", "ms"),
    Figure.FREE_BYTES: Shown(_DISK, "free", "bytes"),
    Figure.WAITING: Shown(_SHIPPER, "records waiting", ""),
    Figure.DELAY_S: Shown(_SHIPPER, "delay", "s"),
}
assert set(SHOWN) == set(Figure)


class Span(NamedTuple):
    rows: int
    row_s: int


SPANS = {"hour": Span(HOUR_S, 1), "day": Span(DAY_STEPS, STEP_S)}
assert all(span.rows % POINTS == 0 for span in SPANS.values())


def subject_of(curve: Curve, names: Mapping[int, str]) -> str:
    """`names` of nodes by index."""
    node = names.get(curve.node, f"node {curve.node}")
    return SHOWN[curve.figure].subject.format(node=node, number=curve.number)


def drawing(
    curves: Curves, span_name: str, names: Mapping[int, str], subject: str = ""
) -> dict[str, Any]:
    """Plain values: points up to now, oldest first, each of `step_s` seconds from `begin` on; of
    one subject alone if it is named. A point without a figure is None."""
    span = SPANS[span_name]
    curves.sum_up()
    own = [each for each in curves.columns if not subject or subject_of(each, names) == subject]
    own.sort(key=lambda each: (min(_group(each)), each.node, each.number, each.figure))
    step_s = span.row_s if subject else span.row_s * (span.rows // POINTS)
    end = (curves.newest // step_s + 1) * step_s
    times = np.arange(end - span.rows * span.row_s, end, span.row_s)
    columns = np.array([curves.columns[each] for each in own], np.intp)
    mean, most = _points(curves, span, times, columns, step_s)
    found: dict[str, list[dict[str, Any]]] = {}
    for each, means, mosts in zip(own, _plain(mean), _plain(most), strict=True):
        if any(point is not None for point in means):
            shown = SHOWN[each.figure]
            told = {
                "figure": each.figure.name.lower(),
                "title": shown.title,
                "unit": shown.unit,
                "mean": means,
                "most": mosts,
            }
            found.setdefault(subject_of(each, names), []).append(told)
    return {
        "span": span_name,
        "begin": int(times[0]),
        "step_s": step_s,
        "left_out": curves.left_out,
        "subjects": [{"subject": name, "curves": drawn} for name, drawn in found.items()],
    }


def _group(curve: Curve) -> list[Figure]:
    """The figures that are shown together with this one."""
    return [each for each in Figure if SHOWN[each].subject == SHOWN[curve.figure].subject]


def _points(
    curves: Curves, span: Span, times: np.ndarray, columns: np.ndarray, step_s: int
) -> tuple[np.ndarray, np.ndarray]:
    """Means and mosts: points, curves."""
    rows = curves.seconds if span.row_s == 1 else curves.steps
    slots = times // span.row_s % span.rows
    known = (rows["second"][slots] == times)[:, None]
    each = step_s // span.row_s
    groups = (span.rows // each, each, len(columns))
    values, mosts = (
        np.where(known, rows[name][np.ix_(slots, columns)], np.float32(np.nan)).reshape(groups)
        for name in (("value", "value") if span.row_s == 1 else ("mean", "most"))
    )
    return summed_up(values, mosts)


def _plain(points: np.ndarray) -> list[list[float | None]]:
    """By curve; of four digits, which is more than anybody sees."""
    exact = points.T.astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        unit = 10.0 ** np.maximum(np.floor(np.log10(np.abs(exact))) - 3, -6)
        rounded = np.where(exact == 0, 0, np.round(exact / unit) * unit)
    return [
        [None if value != value else round(value, 6) for value in curve]
        for curve in rounded.tolist()
    ]
