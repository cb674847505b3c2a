"""Pictures of structures, tasks and a solver, for the gallery in the documentation."""
