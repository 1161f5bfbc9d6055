"""DNS for pods: cluster names are answered here, the rest by the machine's name servers."""
