"""The recursion that every sampler is, and what theory predicts of it."""
