"""What training minimises."""

from evenhand.objectives.base import Loss, Objective, Scored
from evenhand.objectives.bc import BCLoss
from evenhand.objectives.cause import CausE
from evenhand.objectives.macr import MACR
from evenhand.objectives.pairwise import BPR, IPS, Reg
from evenhand.objectives.softmax import Softmax
from evenhand.objectives.softmax_relatives import BSL, PSL, AUCSoftmax, SLatK

__all__ = [
    "BPR",
    "BSL",
    "IPS",
    "MACR",
    "PSL",
    "AUCSoftmax",
    "BCLoss",
    "CausE",
    "Loss",
    "Objective",
    "Reg",
    "SLatK",
    "Scored",
    "Softmax",
]
