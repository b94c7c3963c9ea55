"""Compiler passes: functions from module to module, composed to pipelines by text.

`pipeline` defines passes, pipelines and the default pipelines; start there. Input of the default
pipeline is a traced program over global tensors with some shardings stated, output is the program
that each device runs. Each subfolder holds one group of passes.
"""

from shardir.passes.collective_matmul import CollectiveMatmul as CollectiveMatmul
from shardir.passes.combine import Combine as Combine
from shardir.passes.cse import CommonSubexpressions as CommonSubexpressions
from shardir.passes.dce import DeadCode as DeadCode
from shardir.passes.delay_sums import DelaySums as DelaySums
from shardir.passes.fill_rows import FillRows as FillRows
from shardir.passes.fold_diagonals import FoldDiagonals as FoldDiagonals
from shardir.passes.fold_sums import FoldSums as FoldSums
from shardir.passes.fold_transposes import FoldTransposes as FoldTransposes
from shardir.passes.fold_views import FoldViews as FoldViews
from shardir.passes.fuse import Fuse as Fuse
from shardir.passes.inline import Inline as Inline
from shardir.passes.join_moves import JoinMoves as JoinMoves
from shardir.passes.join_reshards import JoinReshards as JoinReshards
from shardir.passes.merge_devices import MergeDevices as MergeDevices
from shardir.passes.overlap import Overlap as Overlap
from shardir.passes.partition import Partition as Partition
from shardir.passes.pipeline import PASSES as PASSES, Pass as Pass, Pipeline as Pipeline
from shardir.passes.propagate import Propagate as Propagate
from shardir.passes.regather import Regather as Regather
from shardir.passes.reshard import Reshard as Reshard
from shardir.passes.reshard_exactly import ReshardExactly as ReshardExactly
from shardir.passes.resolve_conflicts import ResolveConflicts as ResolveConflicts
from shardir.passes.share_reshards import ShareReshards as ShareReshards
from shardir.passes.simplify import Simplify as Simplify
from shardir.passes.two_levels import TwoLevels as TwoLevels
from shardir.passes.uniform_control import UniformControl as UniformControl
from shardir.passes.want_places import WantPlaces as WantPlaces
