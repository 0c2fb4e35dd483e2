"""One short file per sampler: a rule that turns a Curvature into a Dynamics."""
