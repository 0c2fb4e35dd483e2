"""Can the draws be trusted? Findings, each with its number, threshold and remedy."""
