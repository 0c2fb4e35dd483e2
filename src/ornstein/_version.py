"""The version, where anything may read it."""

__version__ = "1.0.0"
