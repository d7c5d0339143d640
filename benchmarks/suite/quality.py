"""Seconds until AUC-NS is as good on validation as ALS, against the seconds of ALS itself."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from suite.data import Data
from suite.report import Section
from suite.turns import in_turns, ratio

import evenhand as eh
from evenhand.data.splits import Split
from evenhand.methods import contender
from evenhand.training.epochs import train_epochs
from evenhand.training.loop import Loop
from evenhand.training.selection import STOPPING_K, BestValidation, Evaluator
