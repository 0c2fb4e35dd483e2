"""The likelihoods and priors of regressions."""
