"""Values, problems with their paths, and the one walker over a schema. Knows no kind."""
