"""One rule for each kind of operation: what it does to units and to constants."""
