"""`reproduce`: run the paper's tables again with error bars, part by part, and set ours beside the printed.

`request` says what is asked, `recipes` with which numbers each row is trained, `run` works through the grid,
`record` keeps what is finished, `table` sets it beside the paper, and `claims` reads the answer.
"""

from evenhand.paper.reproduce.claims import Claim, claims
from evenhand.paper.reproduce.request import Request
from evenhand.paper.reproduce.run import reproduce

__all__ = ["Claim", "Request", "claims", "reproduce"]
