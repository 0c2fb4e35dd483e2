"""The paper's data sets and experiments."""
