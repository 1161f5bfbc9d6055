"""What requests on objects mean: targets, bodies, options, verbs and answers."""
