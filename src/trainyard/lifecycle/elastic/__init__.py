"""Elastic jobs: changes of size, and restarts that survivors do not notice."""
