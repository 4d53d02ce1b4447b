"""A run in which everything dies at random, and the books in which nothing may be missing afterwards."""
