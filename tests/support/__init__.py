"""What the tests stand on: private Redis servers, real worker processes, waiting, network faults, readings."""
