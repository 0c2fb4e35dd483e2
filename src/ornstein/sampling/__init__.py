"""From a model to a Posterior: plan, warm up, collect, checkpoint."""
