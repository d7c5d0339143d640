"""A small audit to be worked by hand: six users, ten items a to j, of which a, b and c are hot (2 in train).

Plain values without imports, so that `benchmarks/reference_metrics.py` can hand them to other libraries.
"""

TRAIN = {"ann": "abc", "bob": "abd", "cat": "ae", "dan": "abf", "eve": "bcg", "fay": "ij"}
TEST = {"ann": "de", "bob": "ceh", "cat": "b", "dan": "cg", "eve": "af"}
LISTS = {"ann": "fdeg", "bob": "cefg", "cat": "bcdf", "dan": "edh", "eve": "adeh"}
HOT = "abc"
CATALOGUE = "abcdefghij"


def pairs(rows: dict[str, str]) -> list[tuple[str, str]]:
    """(user, item) of each."""
    return [(user, item) for user, items in rows.items() for item in items]
