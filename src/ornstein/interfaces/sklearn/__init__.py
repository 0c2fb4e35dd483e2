"""Estimators that speak scikit-learn."""
