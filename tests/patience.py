"""How long tests wait for what has to happen."""

HUNG_S = 480.0  # whatever takes so long hangs, however busy the machine is: no claim about speed
