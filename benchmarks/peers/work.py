"""The worker of a peer that has no command line: ``python -m benchmarks.peers.work PEER``."""

import sys
from importlib import import_module

from benchmarks.peers.common import in_processes

if __name__ == "__main__":
    in_processes(import_module(f"benchmarks.peers.{sys.argv[1]}").work)
