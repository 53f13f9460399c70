"""Floor 2: protocols, sans-I/O and deterministic. Neighbours never import each other."""
