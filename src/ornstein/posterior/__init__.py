"""Draws as a result: summaries, files, plots and comparison."""
