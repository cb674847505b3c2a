"""Tasks: data reading, features, costs, metrics and defaults that worked."""
