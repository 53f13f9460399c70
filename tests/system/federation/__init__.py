"""Rooms of two sites. A package: these sites, and its browser, end with it."""
