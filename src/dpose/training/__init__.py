"""Private training of any task: clipped sums of per-unit gradients, noise, and a plan that binds them."""
