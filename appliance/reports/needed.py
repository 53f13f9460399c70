"""What Spark's Python needs beside pyspark; `tigerchat report` asks before it starts Spark."""

NEEDED = {
    "numpy": "numpy",
    "pyarrow": "pyarrow",
    "pandas": "'pandas<3'",
    "nacl": "PyNaCl",
    "crc32c": "crc32c",
}  # module: what pip installs
