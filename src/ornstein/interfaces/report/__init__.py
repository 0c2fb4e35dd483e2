"""The HTML report of a fit."""

from ornstein.interfaces.report.report import write_report

__all__ = ["write_report"]
