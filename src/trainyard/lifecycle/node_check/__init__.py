"""Tests of nodes before a job starts, and the nodes that it avoids afterwards."""
