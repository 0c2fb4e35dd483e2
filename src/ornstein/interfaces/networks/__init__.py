"""Trained networks: the posterior of their last layer."""
