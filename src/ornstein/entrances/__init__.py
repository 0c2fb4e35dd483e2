"""The doors of the library: models and runs."""
