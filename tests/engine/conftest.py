from tests.support.house import house as house
