"""A shipper whose target was changed, with nothing copied: what was shipped before is not lost."""

from pathlib import Path

from tests.system.local_site import LocalSite, ports_in_a_row, run, wait_until

PERIODS = 3


def shipped(site: LocalSite, *words: str) -> str:
    told = run("ship", *words, "--local", str(site.folder))
    assert told.returncode == 0, f"{told.stdout}{told.stderr}"
    return told.stdout


def manifests(target: Path) -> list[str]:
    return sorted(path.name for path in target.rglob("manifest-*.json"))


def test_what_lies_at_the_former_target_alone_is_shipped_anew(tmp_path, free_ports):
    former, newer = tmp_path / "former", tmp_path / "newer"
    former.mkdir()
    newer.mkdir()
    local = LocalSite(
        tmp_path / "site", ports_in_a_row(free_ports), nodes=1, ship_target=str(former)
    )
    with local:
        assert run("room", "create", "general", "--local", str(local.folder)).returncode == 0
        for number in range(PERIODS):
            told = run("send", "general", f"message {number}", "--local", str(local.folder))
            assert told.returncode == 0, told.stderr
            assert shipped(local, "now", "--close") == "everything that can be shipped is\n"
        before = manifests(former)
        assert len(before) == PERIODS, "each --close ends a period before its hour is over"
        local.stop()
        local.configure(ship_target=str(newer))
        local.start()
        local.wait_serving()
        wait_until(lambda: manifests(newer) == before, 30, lambda: f"{manifests(newer)}")
        shipped(local, "now", "--close")
        assert shipped(local, "verify").endswith(": whole\n")
    for path in former.rglob("snapshot-*.tig"):
        assert (newer / path.relative_to(former)).read_bytes() == path.read_bytes()
