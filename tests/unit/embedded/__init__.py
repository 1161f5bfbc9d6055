"""Tests of the parts of the embedded cluster, a folder for each; none of them starts one."""
