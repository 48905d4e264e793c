from tests.support.command_house import Terminal, house

__all__ = ["Terminal", "house"]
