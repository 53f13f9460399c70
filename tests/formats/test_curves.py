"""The file of a console's curves: its bytes, and what becomes of one that is damaged."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.base.errors import FormatError
from appliance.base.layout import offset_of
from appliance.formats import curves
from appliance.formats.curves import (
    CURVES_HEAD,
    CURVES_SECOND,
    CURVES_STEP,
    DAY_STEPS,
    HOUR_S,
    SECONDS_AT,
    SIZE,
    STEP_S,
    STEPS_AT,
    decode,
)
from tests.vectors.examples import CLUSTER, CURVES, curve_rows, golden

ROWS = HOUR_S + DAY_STEPS
SECOND, STEP = 1_750_000_007, 1_750_000_000  # of the example's rows


def file_of(raw: bytes) -> bytearray:
    """A file with the example's head and rows where they belong."""
    second_at, step_at = at_of(SECOND), at_of(STEP, is_step=True)
    found = bytearray(SIZE)
    rows = memoryview(raw)[CURVES_HEAD.itemsize :]
    found[: CURVES_HEAD.itemsize] = raw[: CURVES_HEAD.itemsize]
    found[second_at : second_at + CURVES_SECOND.itemsize] = rows[: CURVES_SECOND.itemsize]
    found[step_at : step_at + CURVES_STEP.itemsize] = rows[CURVES_SECOND.itemsize :]
    return found


def at_of(second: int, *, is_step: bool = False) -> int:
    if is_step:
        return STEPS_AT + second // STEP_S % DAY_STEPS * CURVES_STEP.itemsize
    return SECONDS_AT + second % HOUR_S * CURVES_SECOND.itemsize


def test_golden_bytes_are_still_understood() -> None:
    kept = decode(bytes(file_of(golden("curve_rows"))), CLUSTER)
    assert (kept.columns, kept.damaged) == (CURVES, 0)
    (second,) = kept.seconds[kept.seconds["second"] > 0]
    (step,) = kept.steps[kept.steps["second"] > 0]
    assert (second["second"], step["second"]) == (SECOND, STEP)
    assert second["value"][:2].tolist() == [2500.5, np.float32(250e9)]
    assert step["mean"][0] == 1250.25 and step["most"][0] == 2500.5
    assert np.isnan(second["value"][2:]).all() and np.isnan(step["most"][2:]).all()


@settings(max_examples=40)
@given(st.integers(0, CURVES_HEAD.itemsize - 1), st.integers(1, 255))
def test_no_flipped_byte_of_the_head_goes_unnoticed(at: int, flip: int) -> None:
    raw = file_of(curve_rows())
    raw[at] ^= flip
    with pytest.raises(FormatError, match="magic|version|checksum"):
        decode(bytes(raw), CLUSTER)


@settings(max_examples=40)
@given(st.sampled_from(["second", "step"]), st.data(), st.integers(1, 255))
def test_a_row_that_is_damaged_is_a_gap_and_the_others_are_kept(
    which: str, data: st.DataObject, flip: int
) -> None:
    raw = file_of(curve_rows())
    layout, start = {
        "second": (CURVES_SECOND, at_of(SECOND)),
        "step": (CURVES_STEP, at_of(STEP, is_step=True)),
    }[which]
    raw[start + data.draw(st.integers(0, layout.itemsize - 1))] ^= flip
    kept = decode(bytes(raw), CLUSTER)
    left = {"second": np.count_nonzero(kept.seconds["second"])}
    left["step"] = np.count_nonzero(kept.steps["second"])
    assert kept.damaged == 1 and left == {"second": 1, "step": 1} | {which: 0}


@pytest.mark.parametrize("moved_by", [1, -1, HOUR_S // 2])
def test_a_row_at_another_one_s_position_is_a_gap(moved_by: int) -> None:
    raw, size = file_of(curve_rows()), CURVES_SECOND.itemsize
    there, here = at_of(SECOND + moved_by), at_of(SECOND)
    raw[there : there + size] = raw[here : here + size]
    kept = decode(bytes(raw), CLUSTER)
    assert kept.damaged == 1
    assert np.flatnonzero(kept.seconds["second"]).tolist() == [SECOND % HOUR_S]


def test_a_file_of_another_size_version_or_site_is_refused_in_words() -> None:
    raw = bytes(file_of(curve_rows()))
    for other in (b"", raw[:-1], raw + b"\0"):
        with pytest.raises(FormatError, match=f"has {len(other)} bytes, not {SIZE}"):
            decode(other, CLUSTER)
    with pytest.raises(FormatError, match="cluster_id"):
        decode(raw, bytes(16))
    later = bytearray(raw)
    later[offset_of(CURVES_HEAD, "version")] = curves.VERSION + 1
    with pytest.raises(FormatError, match="version 2, not 1"):
        decode(bytes(later), CLUSTER)


def test_a_figure_that_nobody_knows_is_refused() -> None:
    raw = file_of(curve_rows())
    head = np.frombuffer(raw, CURVES_HEAD, 1).copy()
    head["curves"]["figure"][0, 5] = 999
    sealed = curves.crc32c(head.tobytes()[4:]).to_bytes(4, "little") + head.tobytes()[4:]
    raw[: CURVES_HEAD.itemsize] = sealed
    with pytest.raises(FormatError, match="figure"):
        decode(bytes(raw), CLUSTER)
