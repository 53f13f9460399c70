"""A shipped period has one manifest with one hash, and no other text passes for it."""

import json
import subprocess
import sys
from dataclasses import replace
from hashlib import sha256
from typing import Any

import pytest

from appliance.base.errors import FormatError
from appliance.base.signature import CONTEXT_MANIFEST, CONTEXT_SHIPPED_HEAD, SigningKey
from appliance.formats import manifest
from appliance.formats.manifest import NO_MANIFEST, ShippedFile
from tests.vectors.examples import (
    CLUSTER,
    KEY,
    period_manifest_value,
    shipped_head_value,
    trusted_keys_value,
)

VALUE = period_manifest_value()
FILE = manifest.sign_manifest(VALUE, KEY)
TRUSTED = {KEY.public}


def resigned(line: bytes, key: SigningKey = KEY, context: bytes = CONTEXT_MANIFEST) -> bytes:
    signature = key.sign(context, sha256(line).digest()).hex()
    second = json.dumps({"signer": key.public.hex(), "signature": signature})
    return line + b"\n" + second.encode() + b"\n"


def changed(**fields: object) -> bytes:
    table = json.loads(FILE.split(b"\n")[0])
    table.update(fields)
    return resigned(json.dumps(table, separators=(",", ":")).encode())


def test_a_manifest_reads_back_with_its_hash_and_signer() -> None:
    signed = manifest.parse_manifest(FILE, TRUSTED)
    assert signed.value == VALUE
    assert signed.signer == KEY.public
    assert signed.hash == sha256(FILE.split(b"\n")[0]).digest() == manifest.manifest_hash(VALUE)


def test_the_first_line_is_the_same_whoever_signs() -> None:
    other = manifest.sign_manifest(VALUE, SigningKey(b"o" * 32))
    assert other.split(b"\n")[0] == FILE.split(b"\n")[0]
    assert other != FILE


def test_a_head_reads_back_and_is_no_manifest() -> None:
    head = shipped_head_value()
    raw = manifest.sign_head(head, KEY)
    assert manifest.parse_head(raw, TRUSTED).value == head
    with pytest.raises(FormatError, match="signature"):
        manifest.parse_manifest(raw, TRUSTED)
    line = FILE.split(b"\n")[0]
    with pytest.raises(FormatError, match="record_count|manifest"):
        manifest.parse_head(resigned(line, context=CONTEXT_SHIPPED_HEAD), TRUSTED)


def test_an_unknown_signer_is_named() -> None:
    stranger = SigningKey(b"o" * 32)
    with pytest.raises(FormatError, match=stranger.public.hex()):
        manifest.parse_manifest(resigned(FILE.split(b"\n")[0], stranger), TRUSTED)


def test_every_flipped_byte_is_found() -> None:
    for at in range(len(FILE)):
        raw = bytearray(FILE)
        raw[at] ^= 1
        with pytest.raises(FormatError):
            manifest.parse_manifest(bytes(raw), TRUSTED)


def test_every_truncation_is_found() -> None:
    for size in range(len(FILE)):
        with pytest.raises(FormatError):
            manifest.parse_manifest(FILE[:size], TRUSTED)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("format", 2),
        ("format", True),
        ("cluster", "00"),
        ("cluster", "AB" * 16),
        ("shard", 65_536),
        ("shard", None),
        ("number", -1),
        ("number", 0),
        ("previous", "00" * 32),
        ("period_start_us", 1),
        ("period_start_us", 10**18),
        ("period_us", 0),
        ("period_us", 1_500_000),
        ("first_log_seq", 0),
        ("first_log_seq", 9_989),
        ("last_log_seq", 20_002),
        ("last_log_seq", 9_000),
        ("record_count", 3),
        ("chunk_records", 9_999),
        ("files", {}),
        ("files", [1]),
        ("files", []),
        ("number", 1 << 63),
        ("surplus", 1),
    ],
)
def test_a_wrong_value_is_refused_though_it_is_signed(field: str, value: Any) -> None:
    with pytest.raises(FormatError):
        manifest.parse_manifest(changed(**{field: value}), TRUSTED)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", "snapshot-1-2.tig"),
        ("size", 5),
        ("record_count", 12),
        ("chunks", []),
        ("chunks", ["00" * 31]),
        ("sha256", 7),
        ("first_log_seq", 9_991),
        ("last_log_seq", 9_999),
    ],
)
def test_a_wrong_value_of_a_file_is_refused_though_it_is_signed(field: str, value: Any) -> None:
    files = json.loads(FILE.split(b"\n")[0])["files"]
    files[0][field] = value
    with pytest.raises(FormatError):
        manifest.parse_manifest(changed(files=files), TRUSTED)


def test_another_order_of_keys_is_another_text_and_refused() -> None:
    table = json.loads(FILE.split(b"\n")[0])
    line = json.dumps(dict(reversed(table.items())), separators=(",", ":")).encode()
    with pytest.raises(FormatError, match="one form"):
        manifest.parse_manifest(resigned(line), TRUSTED)


def test_an_idle_period_has_an_empty_manifest() -> None:
    idle = replace(VALUE, first_log_seq=5, last_log_seq=4, files=())
    assert idle.record_count == 0
    assert manifest.parse_manifest(manifest.sign_manifest(idle, KEY), TRUSTED).value == idle
    first = replace(idle, number=0, previous=NO_MANIFEST)
    assert manifest.parse_manifest(manifest.sign_manifest(first, KEY), TRUSTED).value == first


def test_a_file_of_a_million_records_has_a_hundred_chunks() -> None:
    large = ShippedFile(1, 1_000_000, b"s" * 32, (b"c" * 32,) * 100)
    value = replace(VALUE, first_log_seq=1, last_log_seq=1_000_000, files=(large,))
    assert manifest.parse_manifest(manifest.sign_manifest(value, KEY), TRUSTED).value == value
    with pytest.raises(FormatError, match="chunks"):
        manifest.encode_manifest(replace(value, files=(replace(large, chunks=(b"c" * 32,) * 99),)))


def test_names_lead_to_the_folder_of_the_periods_start() -> None:
    assert manifest.shard_folder(CLUSTER, 7) == f"cluster={CLUSTER.hex()}/shard=00007"
    assert manifest.period_folder(VALUE.period_start_us) == "date=2025-06-15/hour=15"
    name = manifest.manifest_name(VALUE.period_start_us)
    assert name == "manifest-20250615T150000Z.json"
    assert manifest.parse_manifest_name(name) == VALUE.period_start_us
    assert VALUE.files[0].name == "snapshot-00000000000000009990-00000000000000010000.tig"
    assert manifest.parse_snapshot_name(VALUE.files[0].name) == (9_990, 10_000)
    assert manifest.parse_incoming_name(manifest.incoming_name(12, name)) == (12, name)


@pytest.mark.parametrize(
    "name", ["manifest-20251315T150000Z.json", "manifest-20250615T150000Z.json~", "head.json", ""]
)
def test_other_names_are_none_of_a_manifest_or_snapshot(name: str) -> None:
    assert manifest.parse_manifest_name(name) is None
    assert manifest.parse_snapshot_name(name) is None
    assert manifest.parse_incoming_name(name) is None


def test_keys_read_back_and_a_wrong_field_is_named() -> None:
    raw = manifest.encode_keys(trusted_keys_value())
    assert manifest.parse_keys(raw) == trusted_keys_value()
    assert manifest.parse_keys(raw).public_keys == {KEY.public, b"k" * 32}
    assert manifest.parse_keys(json.dumps(json.loads(raw), indent=2).encode())
    for field, value in (
        ("format", 2),
        ("cluster", "x"),
        ("shards", 0),
        ("keys", []),
        ("keys", [{"node": 1}]),
        ("keys", [{"node": "a", "public_key": "00"}]),
    ):
        with pytest.raises(FormatError, match=f"manifest: ({field}|public_key)"):
            manifest.parse_keys(json.dumps(json.loads(raw) | {field: value}).encode())
    with pytest.raises(FormatError, match="JSON"):
        manifest.parse_keys(b"\xff")


def test_spark_needs_neither_msgspec_nor_blake3_to_read_it() -> None:
    program = (
        "import sys; sys.modules['msgspec'] = sys.modules['blake3'] = None;"
        "import appliance.formats.manifest"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_the_keys_file_says_how_many_records_there_is_room_for_or_says_nothing() -> None:
    silent = manifest.TrustedKeys(b"c" * 16, 2, (("node-0", b"k" * 32),))
    assert manifest.parse_keys(manifest.encode_keys(silent)).records_max == 0
    said = manifest.TrustedKeys(b"c" * 16, 2, (("node-0", b"k" * 32),), 40_960_000)
    assert manifest.parse_keys(manifest.encode_keys(said)) == said
