"""Hangs over NCCL without a GPU: a model of its recorder, of devices, and programs of ranks."""
