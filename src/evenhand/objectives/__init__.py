"""What training minimises, one file each."""

from evenhand.objectives.base import Loss, Objective, Scored
from evenhand.objectives.bpr import BPR
from evenhand.objectives.ips import IPS
from evenhand.objectives.reg import Reg

__all__ = ["BPR", "IPS", "Loss", "Objective", "Reg", "Scored"]
