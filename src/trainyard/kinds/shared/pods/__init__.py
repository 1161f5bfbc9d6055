"""Pods of jobs: templates, assembly, and what pod and node agree on."""
