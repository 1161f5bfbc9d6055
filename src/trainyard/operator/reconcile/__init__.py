"""The controller: watch, queue, plan, execute."""
