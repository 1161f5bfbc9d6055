"""Manifests as users write them: YAML with positions, several documents, lists."""
