"""What a process that sends jobs does, from the call to the script."""
