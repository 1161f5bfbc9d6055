"""Old spellings, and jobs of other systems, as manifests of ours (decision 154).

A converter *takes* fields of the original (`field_tracking`). Each field that it has not taken in
the end becomes a note with its path, so that nothing is dropped silently.
"""
