"""The local picture at the mode: A, C and K[·], and the ways to measure them."""
