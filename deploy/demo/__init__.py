"""Shows the four seed cases with a real Redis, real worker processes and a real SIGKILL: `python -m deploy.demo`."""
