"""Data that the package carries: one folder per dataset, each with a README on its source and licence."""
