"""Block devices for tests: the kernel's loop driver over a sparse file."""

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path


def have_loop_devices() -> bool:
    """Whether this machine gives any to this user."""
    return (
        os.geteuid() == 0
        and shutil.which("losetup") is not None
        and Path("/dev/loop-control").exists()
    )


@contextmanager
def loop_device(file: Path, size: int, *, sector_size: int = 512) -> Iterator[Path]:
    """A device of `size` bytes that lie in `file`, which is made; gone afterwards."""
    with file.open("wb") as made:
        made.truncate(size)
    with loop_device_of(file, f"--sector-size={sector_size}") as device:
        yield device
    file.unlink()


@contextmanager
def loop_device_of(file: Path, *options: str) -> Iterator[Path]:
    """A device of the bytes of a file that is there, and stays."""
    words = ["losetup", "--find", "--show", "--direct-io=on", *options]
    done = subprocess.run([*words, str(file)], capture_output=True, text=True, check=True)
    device = Path(done.stdout.strip())
    try:
        yield device
    finally:
        subprocess.run(["losetup", "--detach", str(device)], check=True)


@contextmanager
def loop_devices(folder: Path, size: int, sector_sizes: Sequence[int]) -> Iterator[list[Path]]:
    """A device of `size` bytes for each of these sizes of sectors."""
    with ExitStack() as open_ones:
        yield [
            open_ones.enter_context(
                loop_device(folder / f"disk-{number}", size, sector_size=sector_size)
            )
            for number, sector_size in enumerate(sector_sizes)
        ]
