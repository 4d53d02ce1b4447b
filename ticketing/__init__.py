"""Ticketing: seats that are held for a while, and the map that shows them. It knows queue_kit's front door and no other app."""
