"""A hundred failures of public kinds: what each has to be told as, and how it ended here."""
