"""Volumes refuse memory, so replicas of tests lie beside the program."""

from tests.drivers.conftest import disk_folder

__all__ = ["disk_folder"]
