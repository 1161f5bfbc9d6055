"""Viewers of training logs, such as TensorBoards."""
