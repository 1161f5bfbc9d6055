"""Jobs of other systems as jobs of ours: Kubeflow's, Volcano's, and Slurm's scripts (decision 154).

Nothing is dropped without a word: a converter *takes* fields (`taking`), and what it has not taken
at the end is told, with its path.
"""
