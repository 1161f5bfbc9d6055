"""Volumes of pods, and the folders of the host behind them."""
