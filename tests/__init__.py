"""Mirrors appliance/; a package, so that tests share tests.strategies under that name."""
