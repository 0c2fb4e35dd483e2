"""NumPyro models, minibatched."""
