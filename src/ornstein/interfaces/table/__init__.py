"""From a table to a fit, and back to predictions."""
