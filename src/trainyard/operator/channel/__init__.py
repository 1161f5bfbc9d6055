"""The channel by which pods report to the controller."""
