"""The objects in a world with a seed."""
