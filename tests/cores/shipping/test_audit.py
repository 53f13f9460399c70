"""A manifest that is missing, forked, foreign or out of order is named by its path."""

from dataclasses import replace
from typing import Any

from appliance.cores.shipping.audit import audit_chain, audit_head
from appliance.formats.manifest import (
    NO_MANIFEST,
    PeriodManifest,
    ShippedHead,
    Signed,
    manifest_hash,
)

CLUSTER, SHARD, PERIOD = b"c" * 16, 3, 1_000_000


def chain(count: int) -> list[tuple[str, Signed[PeriodManifest]]]:
    """Idle periods, one after the other."""
    found, previous = [], NO_MANIFEST
    for number in range(count):
        manifest = PeriodManifest(
            CLUSTER, SHARD, number, previous, number * PERIOD, PERIOD, 1, 0, ()
        )
        previous = manifest_hash(manifest)
        found.append((f"m{number}", Signed(manifest, previous, b"k" * 32)))
    return found


def head_of(signed: Signed[PeriodManifest], **changes: bytes) -> Signed[ShippedHead]:
    value = signed.value
    head = ShippedHead(CLUSTER, SHARD, value.number, signed.hash, value.period_start_us, PERIOD, 0)
    return Signed(replace(head, **changes), b"h" * 32, b"k" * 32)


def problems(found: list[Any]) -> list[str]:
    return [finding.path for finding in audit_chain(found, "folder", CLUSTER, SHARD)]


def test_a_whole_chain_has_no_findings_and_an_empty_one_has() -> None:
    assert problems(chain(5)) == []
    assert problems([]) == ["folder"]


def test_a_missing_manifest_is_found_at_the_one_after_it() -> None:
    found = chain(5)
    del found[2]
    assert set(problems(found)) == {"m3"}
    assert "m1" in problems(found=chain(5)[1:])


def test_a_fork_and_a_foreign_manifest_are_found() -> None:
    found = chain(4)
    forked = replace(found[1][1].value, previous=b"x" * 32)
    found[1] = ("m1", Signed(forked, manifest_hash(forked), b"k" * 32))
    assert problems(found) == ["m1", "m2"]
    found = chain(2)
    foreign = replace(found[1][1].value, shard=SHARD + 1)
    found[1] = ("m1", Signed(foreign, manifest_hash(foreign), b"k" * 32))
    assert problems(found) == ["m1"]


def test_a_head_that_is_missing_ahead_or_of_another_chain_is_found() -> None:
    found = chain(3)
    newest = found[-1][1]
    assert audit_head("head", head_of(newest), found) == []
    assert audit_head("head", head_of(found[0][1]), found) == []  # one cycle behind
    assert audit_head("head", None, []) == []
    for head, there in (
        (None, found),
        (head_of(newest), []),
        (head_of(newest), found[:2]),
        (head_of(newest, manifest=b"x" * 32), found),
    ):
        assert [finding.path for finding in audit_head("head", head, there)] == ["head"]
