"""Passes: functions from module to module, composed by text."""

from shardir.passes.pipeline import PASSES as PASSES, Pass as Pass, Pipeline as Pipeline
from shardir.passes.propagate import Propagate as Propagate
