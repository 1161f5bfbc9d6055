"""Launching by torchrun and over ssh: what several kinds share."""
