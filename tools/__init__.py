"""For developers, never shipped. A package, so that tests import what they check."""
