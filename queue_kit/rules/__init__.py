"""Decisions as pure functions of facts; time and dice are arguments, so that each can be tested as a table."""
