"""What programs and launchers write when they fail, line by line, and what it means."""
