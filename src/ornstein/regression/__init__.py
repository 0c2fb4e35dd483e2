"""From a formula and a table to the matrices of a regression, and back to names and units."""
