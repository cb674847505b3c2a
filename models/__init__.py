"""Ready score modules."""
