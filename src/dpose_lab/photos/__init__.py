"""Grey pictures of people with masks or identities, for experiments on releases."""
