"""A case for each verb, under its own name."""
