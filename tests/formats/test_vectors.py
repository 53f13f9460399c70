"""Yesterday's bytes are today's: what is built equals what was stored at first."""

import pytest

from appliance.formats import (
    checkpoint,
    envelope,
    event,
    manifest,
    record,
    segment,
    session,
    snapshot,
)
from appliance.formats.geometry import SMALL
from tests.vectors import examples


@pytest.mark.parametrize("name", examples.EXAMPLES)
def test_the_example_has_the_golden_bytes(name: str) -> None:
    assert examples.EXAMPLES[name]() == examples.golden(name)


def test_every_golden_file_has_its_example() -> None:
    assert {path.stem for path in examples.FOLDER.glob("*.bin")} == set(examples.EXAMPLES)


def test_golden_bytes_are_still_understood() -> None:
    assert record.sealed(examples.golden("record"))
    frame = examples.golden("frame")
    header = envelope.decode(frame[:128])
    assert header is not None
    assert envelope.body_valid(header, frame[128:-64])
    assert session.decode(examples.golden("session_block")) is not None
    assert checkpoint.decode(examples.golden("manifest"), SMALL) == examples.manifest_value()
    assert (
        checkpoint.decode(examples.golden("manifest_shipping"), SMALL)
        == examples.manifest_shipping_value()
    )
    assert event.decode_shipped(examples.golden("shipped_body")) == examples.shipped_value()
    assert segment.decode_footer(examples.golden("segment_footer"), SMALL).number == 2
    assert snapshot.parse(examples.golden("snapshot"), examples.KEY.public).last_op == 123
    trusted = {examples.KEY.public}
    assert (
        manifest.parse_manifest(examples.golden("period_manifest"), trusted).value
        == examples.period_manifest_value()
    )
    assert (
        manifest.parse_head(examples.golden("shipped_head"), trusted).value
        == examples.shipped_head_value()
    )
    assert manifest.parse_keys(examples.golden("trusted_keys")) == examples.trusted_keys_value()
