"""The moves of a job and of a queue as a state model, small enough to look at every state there is."""
