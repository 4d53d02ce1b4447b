"""One app of the shop."""
