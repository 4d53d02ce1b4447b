"""The only package that speaks Redis: the moves of a job, what people read of it, and the names of keys."""

from queue_kit.store.keys import Keys
from queue_kit.store.ledger import Ledger
from queue_kit.store.moves import AT_ONCE, Claim, Claimed, Message, Moves, Room, Traits, When
from queue_kit.store.script import Call

__all__ = ["AT_ONCE", "Call", "Claim", "Claimed", "Keys", "Ledger", "Message", "Moves", "Room", "Traits", "When"]
