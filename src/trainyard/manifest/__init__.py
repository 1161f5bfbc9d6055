"""Manifests as users write them: YAML with positions, several documents, old spellings."""
