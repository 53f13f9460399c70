"""What Spark's Python needs beside pyspark; `tigerchat report` asks before it starts Spark.

Not among the reports: a frozen program has those only packed, and must know this before Spark does.
"""

NEEDED = {
    "numpy": "numpy",
    "pyarrow": "pyarrow",
    "pandas": "'pandas<3'",
    "nacl": "PyNaCl",
    "crc32c": "crc32c",
}  # module: what pip installs
