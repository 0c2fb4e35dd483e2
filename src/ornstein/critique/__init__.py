"""Whether the model fits the data: `Posterior.critique`."""
