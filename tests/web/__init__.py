"""Pages in a browser. A package: its shared site and browser end with it."""
