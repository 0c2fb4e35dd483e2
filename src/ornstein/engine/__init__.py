"""Runs a kernel on a loss; knows no theory."""
