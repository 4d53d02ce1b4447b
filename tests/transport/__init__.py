"""Tests of the transport: ways to reach Redis, connections, and everything on them that is not a job."""
