"""Every case of the matrix, in the order of the table."""

from tests.compat.cases import configs, consume, produce, topics
from tests.compat.cases.registry import CASES, Case, Trial

SECTIONS = (topics.SECTION, configs.SECTION, produce.SECTION, consume.SECTION)

__all__ = ["CASES", "SECTIONS", "Case", "Trial"]
