"""What `import trainyard` offers, and the command line is written on: every action, in Python."""
