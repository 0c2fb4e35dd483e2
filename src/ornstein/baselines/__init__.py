"""Other methods for the same posterior, to compare with; each returns the same Posterior as
`sample`.
"""
