"""What a project gets for its own tests."""
