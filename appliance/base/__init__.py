"""Floor 0: limits, errors, checksums, signatures, random numbers; no word of the domain."""
