from tests.support.command_house import house as house
