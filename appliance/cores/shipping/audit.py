"""What is wrong with the manifests of a shard, taken together: gaps, forks, a wrong head."""

from typing import NamedTuple

from appliance.formats.manifest import NO_MANIFEST, PeriodManifest, ShippedHead, Signed


class Finding(NamedTuple):
    """`path` below the target's root, and what is wrong there."""

    path: str
    problem: str


Found = list[tuple[str, Signed[PeriodManifest]]]  # path, verified manifest


def audit_chain(found: Found, folder: str, cluster: bytes, shard: int) -> list[Finding]:
    """Findings about manifests in the order of their periods; `folder` is the shard's."""
    findings = []
    number, previous, start_us, first = 0, NO_MANIFEST, None, 1
    for path, signed in found:
        manifest = signed.value
        if (manifest.cluster, manifest.shard) != (cluster, shard):
            findings.append(Finding(path, "is of another cluster or shard"))
            continue
        if manifest.number != number:
            findings.append(Finding(path, f"is number {manifest.number}, expected {number}"))
        elif manifest.previous != previous:
            findings.append(Finding(path, "does not name the manifest before it"))
        if start_us not in (None, manifest.period_start_us):
            findings.append(Finding(path, "does not begin where the period before ended"))
        if manifest.first_log_seq != first:
            findings.append(
                Finding(path, f"begins with record {manifest.first_log_seq}, expected {first}")
            )
        number, previous = manifest.number + 1, signed.hash
        start_us, first = manifest.period_end_us, manifest.last_log_seq + 1
    if not found:
        findings.append(Finding(folder, "has no manifest"))
    return findings


def audit_head(path: str, head: Signed[ShippedHead] | None, found: Found) -> list[Finding]:
    """Whether the head names the newest manifest that is there."""
    if head is None:
        return [Finding(path, "is missing")] if found else []
    if not found:
        return [Finding(path, f"names manifest {head.value.number}; none is there")]
    newest = found[-1][1]
    if head.value.number > newest.value.number:
        return [
            Finding(
                path,
                f"names manifest {head.value.number}; the newest one that is there "
                f"is {newest.value.number}",
            )
        ]
    named = [signed for _, signed in found if signed.value.number == head.value.number]
    if not named or named[0].hash != head.value.manifest:
        return [Finding(path, f"names another manifest {head.value.number} than lies there")]
    return []
