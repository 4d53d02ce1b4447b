"""For people and monitors: reading only, never needed by a worker to run a job."""
