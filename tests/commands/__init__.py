"""Commands as users run them. A package: its shared site ends with it."""
