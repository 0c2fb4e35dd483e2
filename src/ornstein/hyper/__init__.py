"""Hyperparameters learnt while sampling (variational EM), and what they are compared with:
mean-field ELBO and a grid of MAP fits.
"""
