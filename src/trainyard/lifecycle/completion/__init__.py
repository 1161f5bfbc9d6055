"""When and how a job ends: verdicts, deadlines, rules of success and failure, invalid specs."""
