"""Reads messages of exceptions that span several lines of a log."""

from __future__ import annotations

from trainyard.schema.dataclass import dataclass

_LONGEST, _MOST_LINES, _ENDS = 200, 4, (".", "!", "?")
_LAST_ERROR = "Last error:"
"""Of NCCL: what it says before says nothing, what it says below does."""
_SECOND_HALF = "Unexpected key(s) in state_dict"
"""Of torch's load_state_dict: what is missing comes first."""


@dataclass(slots=True)
class Message:
    """What an exception says, as far as it was read; by default nothing more is to come."""

    text: str = ""
    is_announced: bool = False
    """Whether its first line ends with a colon, so that more follows."""
    width: int = 0
    """Of the box above it, at which lines are broken; 0 where there is none."""
    is_native: bool = False
    """Of C++, whose words stand on the next line."""
    column: int = 0
    """Where the line before ended."""
    _lines: int = 0
    _is_sentence: bool = False

    def continues(self, line: str) -> bool:
        """Take the next line; return whether it belongs to the message."""
        rest, self._lines = line.strip(), self._lines + 1
        if not rest or self._lines > _MOST_LINES or len(self.text) > _LONGEST:
            return False
        if self.is_native:
            self.is_native, is_message = False, rest.startswith("what():")
            self.text = rest.removeprefix("what():").strip() if is_message else ""
            return is_message
        if self.text.startswith("NCCL error"):
            return self._of_nccl(rest)
        is_wrapped = self.column + 1 + len(rest.split()[0]) > self.width > 0
        self.column = len(line.rstrip())
        if not (self.is_announced or is_wrapped or rest.startswith(_SECOND_HALF)):
            return False
        self._is_sentence = self._is_sentence or not self.text
        self.text = f"{self.text} {rest}".strip()
        is_over = rest[-1] in _ENDS or not self._is_sentence
        self.is_announced = rest.endswith(":") or not is_over
        return True

    def _of_nccl(self, rest: str) -> bool:
        if self.is_announced:
            self.text = f"{rest} ({self.text})"
        self.is_announced = rest == _LAST_ERROR
        return True
