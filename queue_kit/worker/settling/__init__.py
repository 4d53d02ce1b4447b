"""What becomes of a run, in the worker's main process; the one place that settles."""
