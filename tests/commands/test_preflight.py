"""A machine beside its profile: each difference is named, with its costs and how to mend it."""

import json
import re
from pathlib import Path

import pytest

from appliance.drivers.host import machine_facts, resources
from appliance.formats.machine_profile import load_profile
from appliance.node import preflight
from appliance.node.preflight import DIFFERS, FITS, UNKNOWN, choose, compare, fragments, named
from tests.commands.conftest import Tigerchat

FOLDER = resources.profiles()
MODELS = sorted(path.stem for path in FOLDER.glob("*.toml"))
KERNEL = {
    "sysctl.vm.swappiness": "0",
    "sysctl.net.core.somaxconn": "4096",
    "sysctl.net.core.rmem_max": "16777216",
    "sysctl.net.core.wmem_max": "33554432",  # more than is asked for
}
COMMON = {
    "cpu.busy": "1,2,3,5,6,7",
    "cpu.interrupts_on_isolated": "0",
    "cpu.isolated": "1,2,3,5,6,7",
    "cpu.numa_nodes": "1",
    "cpu.unmitigated": "none",
    "clock.synchronized": "yes",
    "memory.transparent_huge_pages": "madvise",
    "disk.nvme0n1.scheduler": "none",
    "disk.nvme0n1.write_cache": "write through",
    "disk.nvme0n1.sector_size": "4096",
    "nvme.nvme0.model": "Some Drive",
    "nvme.nvme0.firmware": "1",
    "nvme.nvme0.latency_tolerance_us": "0",
    **KERNEL,
}
ISOLATED = "quiet isolcpus=1,2,3,5,6,7 nohz_full=1,2,3,5,6,7 rcu_nocbs=1,2,3,5,6,7"
BARE = {
    "bios.boot": "uefi",
    "cpu.governor": "performance",
    "machine.virtual": "no",
    "kernel.command_line": f"{ISOLATED} transparent_hugepage=madvise",
}
# Facts of a machine of each model, as `--record` prints them, on which all is as it should be.
RECORDED: dict[str, dict[str, str]] = {
    "generic-x86-64": {
        **COMMON, **BARE, "machine.arch": "x86_64", "cpu.clock_source": "tsc",
        "machine.vendor": "Nobody", "machine.product": "Box",
    },
    "arm64": {
        **COMMON, **BARE, "machine.arch": "aarch64", "cpu.clock_source": "arch_sys_counter",
    },
    "virtual-machine": {
        **COMMON, "machine.arch": "x86_64", "machine.virtual": "yes", "bios.boot": "bios",
        "kernel.command_line": "transparent_hugepage=madvise",
    },
    "supermicro-sys-111c-nr": {
        **COMMON, **BARE, "machine.arch": "x86_64", "cpu.clock_source": "tsc",
        "machine.vendor": "Supermicro", "machine.product": "SYS-111C-NR",
        "bios.version": "2.10", "bmc.version": "1.4",
        "nvme.nvme0.model": "SAMSUNG MZQL21T9HCJR-00A07", "nvme.nvme0.firmware": "GDC5602Q",
        "nic.eth0.driver": "mlx5_core", "nic.eth0.firmware": "22.36.1010",
        "nic.eth0.rx_ring": "8192", "nic.eth0.tx_ring": "4096",
        "kernel.command_line": f"{ISOLATED} transparent_hugepage=madvise "
        "intel_idle.max_cstate=1 nvme.poll_queues=0",
    },
}  # fmt: skip
# What goes wrong on one: (fact, its value, line that names it).
PLANTED = [
    ("bios.version", "2.0", "bios.version"),
    ("bios.boot", "bios", "bios.boot"),
    ("bmc.version", "1.03", "bmc.version"),
    ("cpu.clock_source", "hpet", "cpu.clock_source"),
    ("cpu.governor", "performance powersave", "cpu.governor"),
    ("cpu.numa_nodes", "2", "cpu.numa_nodes"),
    ("cpu.unmitigated", "meltdown", "cpu.mitigated"),
    ("cpu.interrupts_on_isolated", "3", "cpu.interrupts"),
    ("clock.synchronized", "no", "clock"),
    ("memory.transparent_huge_pages", "always", "memory.transparent"),
    ("disk.nvme0n1.scheduler", "mq-deadline", "disk.scheduler.nvme0n1"),
    ("disk.nvme0n1.write_cache", "write back", "disk.write_cache.nvme0n1"),
    ("disk.nvme0n1.sector_size", "512", "nvme.sector_size.nvme0n1"),
    ("nvme.nvme0.latency_tolerance_us", "100000", "disk.latency.nvme0"),
    ("nvme.nvme0.model", "Another", "nvme.model.SAMSUNG MZQL21T9HCJR-00A07"),
    ("nvme.nvme0.firmware", "GDC5502Q", "nvme.firmware.nvme0"),
    ("nic.eth0.driver", "e1000e", "nic.driver.mlx5_core"),
    ("nic.eth0.firmware", "22.35.3000", "nic.firmware.eth0"),
    ("nic.eth0.rx_ring", "512", "nic.ring.eth0.rx_ring"),
    ("kernel.command_line", ISOLATED, "kernel.command_line.intel_idle.max_cstate=1"),
    ("sysctl.vm.swappiness", "60", "kernel.sysctl.vm.swappiness"),
    ("sysctl.net.core.rmem_max", "212992", "kernel.sysctl.net.core.rmem_max"),
]


def test_there_are_facts_of_every_profile() -> None:
    assert sorted(RECORDED) == MODELS


@pytest.mark.parametrize("model", MODELS)
def test_a_machine_finds_the_profile_of_its_model_or_kind(model: str) -> None:
    profile = choose(FOLDER, RECORDED[model])
    assert Path(profile.file).stem == model
    for line in compare(profile, RECORDED[model]):
        # settings of the firmware cannot be read, so they are never said to be right
        assert line.state == (UNKNOWN if line.name.startswith("bios.settings.") else FITS), line


@pytest.mark.parametrize(("fact", "value", "name"), PLANTED, ids=[row[2] for row in PLANTED])
def test_a_planted_difference_is_named_with_what_it_costs_and_how_to_mend_it(
    fact: str, value: str, name: str
) -> None:
    facts = {**RECORDED["supermicro-sys-111c-nr"], fact: value}
    lines = compare(named(FOLDER, "supermicro-sys-111c-nr"), facts)
    found = {line.name: line for line in lines if line.state == DIFFERS}
    assert name in found
    assert found[name].costs and found[name].mend
    related = {"cpu.governor", "disk.write_cache.nvme0n1", "nvme.model", "kernel.command_line"}
    others = [other for other in found if other != name]
    assert len(others) <= 1 or any(name.startswith(one) for one in related), others


def test_every_comparison_has_a_planted_difference() -> None:
    kinds = {
        kind for kind in preflight.REASONS if any(name.startswith(kind) for *_, name in PLANTED)
    }
    without = preflight.REASONS.keys() - kinds
    # what cannot be read; what no profile asks for; a drive's, planted as that of all disks
    assert without == {"bios.settings", "memory.huge_pages", "nvme.power_loss"}


def test_what_a_machine_does_not_tell_is_unknown_and_no_difference() -> None:
    lines = compare(named(FOLDER, "supermicro-sys-111c-nr"), {})
    assert {line.state for line in lines} == {UNKNOWN}


def test_versions_compare_by_their_numbers() -> None:
    profile = named(FOLDER, "supermicro-sys-111c-nr")
    for version, state in (("2.1", FITS), ("2.10", FITS), ("10.0", FITS), ("1.99", DIFFERS)):
        lines = compare(profile, {"bios.version": version})
        assert [line.state for line in lines if line.name == "bios.version"] == [state], version


def test_few_cores_are_not_given_away() -> None:
    profile = named(FOLDER, "generic-x86-64")
    assert "isolcpus=" not in str(preflight.words_wanted(profile, {"cpu.busy": "1"}))
    assert "isolcpus=1,2,3" in preflight.words_wanted(profile, {"cpu.busy": "1,2,3"})


def test_a_key_that_no_table_knows_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "odd.toml"
    path.write_text('[machine]\nname = "odd"\n[cpu]\ngovernors = "x"\n')
    with pytest.raises(Exception, match=r"cpu\.governors is unknown; allowed: clock_source"):
        load_profile(path)


# --- this machine, and one made of files ----------------------------------------------------------


def test_the_facts_are_those_of_the_files_of_the_kernel(tmp_path: Path) -> None:
    files = {
        "sys/class/dmi/id/sys_vendor": "Supermicro\n",
        "sys/class/dmi/id/product_name": "SYS-111C-NR\n",
        "sys/class/dmi/id/bios_version": "2.1\n",
        "sys/firmware/efi/fw_platform_size": "64\n",
        "sys/devices/platform/ipmi_bmc.0/firmware_revision": "1.4\n",
        "proc/cpuinfo": "flags : fpu vme\n",
        "proc/cmdline": "quiet  isolcpus=2-3\n",
        "proc/sys/vm/swappiness": "0\n",
        "proc/irq/24/smp_affinity_list": "0-1\n",
        "proc/irq/25/smp_affinity_list": "1,3\n",
        "sys/devices/system/cpu/online": "0-3\n",
        "sys/devices/system/cpu/isolated": "2-3\n",
        "sys/devices/system/cpu/cpu0/topology/thread_siblings_list": "0,2\n",
        "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "performance\n",
        "sys/devices/system/cpu/cpu1/cpufreq/scaling_governor": "powersave\n",
        "sys/devices/system/cpu/vulnerabilities/meltdown": "Not affected\n",
        "sys/devices/system/cpu/vulnerabilities/spectre_v2": "Vulnerable, STIBP: off\n",
        "sys/devices/system/node/online": "0-1\n",
        "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n",
        "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages": "64\n",
        "sys/block/nvme0n1/queue/scheduler": "[none] mq-deadline\n",
        "sys/block/nvme0n1/queue/write_cache": "write through\n",
        "sys/block/nvme0n1/queue/logical_block_size": "4096\n",
        "sys/block/loop0/queue/scheduler": "[none]\n",
        "sys/class/nvme/nvme0/model": "SAMSUNG MZQL21T9HCJR-00A07   \n",
        "sys/class/nvme/nvme0/firmware_rev": "GDC5602Q\n",
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    facts = machine_facts.read(["vm.swappiness"], tmp_path)
    assert facts == {
        "machine.vendor": "Supermicro", "machine.product": "SYS-111C-NR", "machine.virtual": "no",
        "bios.version": "2.1", "bios.boot": "uefi", "bmc.version": "1.4",
        "cpu.governor": "performance powersave", "cpu.isolated": "2,3", "cpu.busy": "1,3",
        "cpu.interrupts_on_isolated": "1", "cpu.numa_nodes": "2", "cpu.unmitigated": "spectre_v2",
        "memory.transparent_huge_pages": "madvise", "memory.huge_pages_2m": "64",
        "kernel.command_line": "quiet isolcpus=2-3", "sysctl.vm.swappiness": "0",
        "disk.nvme0n1.scheduler": "none", "disk.nvme0n1.write_cache": "write through",
        "disk.nvme0n1.sector_size": "4096", "nvme.nvme0.model": "SAMSUNG MZQL21T9HCJR-00A07",
        "nvme.nvme0.firmware": "GDC5602Q",
    }  # fmt: skip


def test_this_machine_is_compared_line_by_line(tigerchat: Tigerchat) -> None:
    told = tigerchat("preflight")
    assert told.returncode == 0, told.stderr
    first, *lines = told.stdout.splitlines()
    counted = re.fullmatch(r".+: (\d+) differences?, (\d+) not told by this machine", first)
    assert counted is not None
    names = [line for line in lines if line[0] != " "]
    assert sum(line.startswith("differs") for line in names) == int(counted[1])
    assert sum(line.startswith("unknown") for line in names) == int(counted[2])
    facts = json.loads(tigerchat("preflight", "--record").stdout)
    assert facts["kernel.command_line"] == " ".join(Path("/proc/cmdline").read_text().split())
    assert facts["sysctl.vm.swappiness"] == Path("/proc/sys/vm/swappiness").read_text().strip()


def test_strict_fails_on_a_difference_alone(tigerchat: Tigerchat, tmp_path: Path) -> None:
    path = tmp_path / "facts.json"
    for governor, code in (("performance", 0), ("powersave", 1)):
        path.write_text(json.dumps({**RECORDED["generic-x86-64"], "cpu.governor": governor}))
        told = tigerchat("preflight", "--facts", path, "--strict")
        assert told.returncode == code, told.stdout
    assert tigerchat("preflight", "--facts", path).returncode == 0


def test_what_files_can_set_is_written_after_a_look_and_nothing_else(
    tigerchat: Tigerchat, tmp_path: Path
) -> None:
    facts, etc = tmp_path / "facts.json", tmp_path / "etc"
    recorded = RECORDED["supermicro-sys-111c-nr"]
    facts.write_text(json.dumps(recorded))
    words = ["preflight", "--facts", facts, "--etc", etc]
    looked = tigerchat(*words, "--dry-run")
    assert looked.returncode == 0 and not etc.exists()
    assert tigerchat(*words, "--apply").returncode == 0
    texts = fragments(choose(FOLDER, recorded), recorded)
    assert {
        str(p.relative_to(etc)): p.read_text() for p in etc.rglob("*.*") if p.is_file()
    } == texts
    assert all(text in looked.stdout for text in texts.values())
    assert "isolcpus=1,2,3,5,6,7 " in texts[preflight.COMMAND_LINE_FILE]
    assert "net.core.rmem_max = 16777216\n" in texts[preflight.SYSCTL_FILE]
    assert 'ATTR{queue/scheduler}="none"' in texts[preflight.UDEV_FILE]
    assert "ethtool -G $name rx 4096 tx 4096" in texts[preflight.UDEV_FILE]
    again = tigerchat(*words, "--apply").stdout
    assert again.count("is as it should be") == len(texts)


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--profile", "pdp-11"], "pdp-11 is no profile; allowed: arm64, generic-x86-64"),
        (["--facts", "/nowhere"], "/nowhere: No such file"),
        (["--dry-run", "--apply"], "say --dry-run or --apply"),
    ],
)
def test_mistakes_are_one_sentence(tigerchat: Tigerchat, words: list[str], complaint: str) -> None:
    told = tigerchat("preflight", *words)
    assert told.returncode in (1, 2) and complaint in told.stderr
    assert len(told.stderr.splitlines()) == 1
