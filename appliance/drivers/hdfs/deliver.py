"""Puts one file so that it is whole or absent under its name: incoming, read back, renamed."""

from collections.abc import Callable
from hashlib import sha256

from appliance.base.errors import TargetDamaged, TargetUnavailable
from appliance.drivers.hdfs.target import Target


def deliver(
    target: Target,
    incoming: str,
    path: str,
    data: bytes,
    *,
    overwrite: bool,
    still_mine: Callable[[], bool],
) -> None:
    """Have exactly `data` at `path`. `still_mine` is asked right before the file gets its name."""
    target.put(incoming, data)
    entry = target.status(incoming)
    digest, wanted = sha256(), sha256(data).digest()
    if entry is not None and entry.size == len(data):
        for block in target.read(incoming):
            digest.update(block)
    if digest.digest() != wanted:
        raise TargetDamaged(f"{target.describe()}: {incoming} read back is not what was put")
    if not still_mine():
        raise TargetUnavailable("another node ships by now")
    if not target.rename(incoming, path, overwrite=overwrite):
        raise TargetUnavailable(f"{target.describe()}: {path} appeared meanwhile")
