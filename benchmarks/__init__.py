"""Speed, measured as ratios in one run: ornstein beside its peers on the same tasks."""
