"""What a program in a pod may try in order to get out; runs inside one, with nothing but Python.

``python -m inside`` prints one JSON object: the name of each attempt to True (it got what it should
not), False, or the refusal. What only shows outside, a file that was written, is judged there.
"""

from . import files, kernel, network, processes
from .trying import ATTEMPTS

__all__ = ["ATTEMPTS", "files", "kernel", "network", "processes"]
