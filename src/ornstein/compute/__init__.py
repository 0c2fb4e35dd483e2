"""How numbers are computed: JAX's width and compilation."""
