"""What real API servers answer, recorded, and whether the embedded one answers the same."""
