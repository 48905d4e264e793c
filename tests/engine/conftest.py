from tests.support.house import ALL, House, approve, house
from tests.support.scripts import call, talk, turn

__all__ = ["ALL", "House", "approve", "call", "house", "talk", "turn"]
