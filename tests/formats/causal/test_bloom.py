"""The filter, byte for byte that of the other implementation."""

import hashlib

import pytest

from appliance.formats.causal.bloom import (
    DEFAULT_GEOMETRY,
    BloomFilter,
    Geometry,
    contains,
    false_positive_rate,
    positions,
)

SMALL = Geometry(10, 0.001)
WIDE = Geometry(1 << 28, 0.001)  # more bits than a hash has values
EMPTY_SHA = "e08dc1c9f86ef8b13a6d991e86b95125a742c9a6f41ccb67b128fe42ad5362f7"
THREE_SHA = "f64b9f3ea762bd1d4d98447fefd0bae11cb465c751e1605648b4af7c974754cd"
HEX_SHA = "22ff90ab7e737adc74224fdba92c13dd68b0d237115bf6d566c876ad380b8590"
THOUSAND_SHA = "f8b24c70d30311dbd5b074de8607e71b8b7d04ea4e7c30327183159102780dc7"


def filled(ids: list[str], geometry: Geometry = DEFAULT_GEOMETRY) -> BloomFilter:
    made = BloomFilter(geometry)
    for message_id in ids:
        made.insert(message_id)
    return made


@pytest.mark.parametrize(
    ("capacity", "rate", "bits", "hashes", "size"),
    [
        (10, 0.001, 150, 10, 24),
        (100, 0.01, 1000, 7, 128),
        (100, 0.001, 1500, 10, 192),
        (500, 0.01, 5000, 7, 632),
        (1000, 0.001, 15000, 10, 1880),
        (10000, 0.001, 150000, 10, 18752),
        (12000, 0.001, 180000, 10, 22504),
    ],
)
def test_geometry_follows_from_capacity_and_error_rate(
    capacity: int, rate: float, bits: int, hashes: int, size: int
) -> None:
    geometry = Geometry(capacity, rate)
    assert (geometry.bits, geometry.hashes, geometry.size) == (bits, hashes, size)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("m1", 0x171D22A8),
        ("m1 b", 0x35959958),
        ("m2", 0x17575F74),
        ("m3", 0x7BDA874F),
        ("alpha", 0xA9C0133D),
        ("", 0),
    ],
)
def test_murmur_vectors(text: str, value: int) -> None:
    assert positions(text, WIDE)[0] == min(value, (1 << 32) - value)  # as it is read: signed


@pytest.mark.parametrize(
    ("message_id", "geometry", "expected"),
    [
        ("m1", SMALL, (134, 52, 120, 38, 106, 24, 92, 10, 78, 146)),
        ("m2", SMALL, (36, 5, 124, 93, 62, 31, 0, 119, 88, 57)),
        ("m3", SMALL, (105, 42, 129, 66, 3, 90, 27, 114, 51, 138)),
        (
            "m1",
            DEFAULT_GEOMETRY,
            (35384, 81952, 128520, 25088, 71656, 118224, 14792, 61360, 107928, 4496),
        ),
        (
            "8ed3f6ad685b959ead7022518e1af76cd816f8e8ec7ccdda1ed4018e8f2223f8",
            DEFAULT_GEOMETRY,
            (123987, 140538, 7089, 23640, 40191, 56742, 73293, 89844, 106395, 122946),
        ),
    ],
)
def test_positions_of_known_ids(
    message_id: str, geometry: Geometry, expected: tuple[int, ...]
) -> None:
    assert positions(message_id, geometry) == expected


@pytest.mark.parametrize(
    ("ids", "geometry", "expected"),
    [
        ("m1", SMALL, "001000400100040001000400100040000000000000040040"),
        ("m1 m2 m3", SMALL, "421804508900042911840600350040040000000000040442"),
        ("m1 m2 m3", Geometry(10, 0.01), "01940110a11010080000000031102404"),
    ],
)
def test_bytes_of_small_filters(ids: str, geometry: Geometry, expected: str) -> None:
    assert bytes(filled(ids.split(), geometry)).hex() == expected


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        ([], EMPTY_SHA),
        (["m1", "m2", "m3"], THREE_SHA),
        ([hashlib.sha256(w).hexdigest() for w in (b"alpha", b"bravo", b"charlie")], HEX_SHA),
        ([f"id-{i}" for i in range(1000)], THOUSAND_SHA),
    ],
)
def test_bytes_of_default_filters(ids: list[str], expected: str) -> None:
    data = bytes(filled(ids))
    assert len(data) == 18_752
    assert hashlib.sha256(data).hexdigest() == expected


def test_a_full_filter_rolls_over_in_place_and_keeps_the_newest_four_fifths() -> None:
    geometry = Geometry(100, 0.001)
    made = BloomFilter(geometry)
    ids = [hashlib.sha256(str(i).encode()).hexdigest() for i in range(400)]
    for count, message_id in enumerate(ids, 1):
        made.insert(message_id)
        assert len(bytes(made)) == geometry.size
        assert made.count <= geometry.capacity
        assert all(newest in made for newest in ids[max(0, count - 80) : count])
    rebuilt = filled(ids[-made.count :], geometry)
    assert bytes(rebuilt) == bytes(made)


def test_exactly_at_capacity_nothing_is_forgotten_and_one_past_it_keeps_four_fifths() -> None:
    geometry = Geometry(100, 0.001)
    made = filled([f"id-{i}" for i in range(100)], geometry)
    assert made.count == 100
    made.insert("id-100")
    assert made.count == 80
    assert bytes(made) == bytes(filled([f"id-{i}" for i in range(21, 101)], geometry))


def test_false_positives_stay_within_one_and_a_half_times_the_rate_at_capacity() -> None:
    made = filled([f"id-{i}" for i in range(10_000)])
    data = bytes(made)
    hits = sum(contains(data, positions(f"no-{i}", DEFAULT_GEOMETRY)) for i in range(20_000))
    assert hits / 20_000 <= 0.0015
    assert 0.0005 < false_positive_rate(data, DEFAULT_GEOMETRY) < 0.0015


def test_a_filter_of_all_ones_is_estimated_as_worthless() -> None:
    assert false_positive_rate(b"\xff" * 18_752, DEFAULT_GEOMETRY) == 1.0
    assert false_positive_rate(bytes(18_752), DEFAULT_GEOMETRY) == 0.0
