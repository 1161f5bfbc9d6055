"""Scripts: from the options of `trainyard run SCRIPT` to the manifest that runs it."""
