"""TigerChat: a replicated chat and event log in one executable.

The folders of this package stand on floors; an import goes down a floor or stays in its room:

    5  __main__      the entry point
    4  commands      one module per verb
    3  roles         cores and drivers wired to long-running duties;  simulation: the same cores
    with a seed
    2  cores         protocols, sans-I/O;  drivers: the machine;  reports: what Spark runs
    1  formats       every byte layout, once
    0  base          limits, errors, checksums: no word of the domain
"""

VERSION = "0.1.0"
