"""Compiler passes: functions from module to module, composed to pipelines by text.

`pipeline` defines passes, pipelines and the default pipelines; start there. Input of the default
pipeline is a traced program over global tensors with some shardings stated, output is the program
that each device runs. Each subfolder holds one group of passes.
"""

from shardir.passes.batching.key_words import ExpandRbgKeys as ExpandRbgKeys
from shardir.passes.collectives.collective_matmul import CollectiveMatmul as CollectiveMatmul
from shardir.passes.collectives.combine import CombineCollectives as CombineCollectives
from shardir.passes.collectives.hierarchical import (
    HierarchicalCollectives as HierarchicalCollectives,
)
from shardir.passes.collectives.overlap import Overlap as Overlap
from shardir.passes.collectives.rematerialize_gathers import (
    RematerializeGathers as RematerializeGathers,
)
from shardir.passes.collectives.uniform_control_flow import UniformControlFlow as UniformControlFlow
from shardir.passes.collectives.widen_reductions import WidenReductions as WidenReductions
from shardir.passes.fusion.fuse import Fuse as Fuse
from shardir.passes.fusion.fuse_products import FuseProducts as FuseProducts
from shardir.passes.microbatching.accumulate_microbatches import (
    AccumulateMicrobatches as AccumulateMicrobatches,
)
from shardir.passes.microbatching.split_batch import SplitBatch as SplitBatch
from shardir.passes.partitioning.partition import Partition as Partition
from shardir.passes.pipeline import PASSES as PASSES, Pass as Pass, Pipeline as Pipeline
from shardir.passes.pipeline_parallelism.inline_pipelines import InlinePipelines as InlinePipelines
from shardir.passes.pipeline_parallelism.schedule_pipelines import (
    SchedulePipelines as SchedulePipelines,
)
from shardir.passes.pipeline_parallelism.split_backward import SplitBackward as SplitBackward
from shardir.passes.pipeline_parallelism.split_stages import SplitStages as SplitStages
from shardir.passes.pipeline_parallelism.stack_weights import StackWeights as StackWeights
from shardir.passes.propagation.propagate import Propagate as Propagate
from shardir.passes.rematerialization.remat import Remat as Remat
from shardir.passes.rematerialization.remat_layers import RematLayers as RematLayers
from shardir.passes.resharding.insert_explicit_reshards import (
    InsertExplicitReshards as InsertExplicitReshards,
)
from shardir.passes.resharding.merge_shifts import MergeShifts as MergeShifts
from shardir.passes.resharding.reshard import Reshard as Reshard
from shardir.passes.resharding.resolve_conflicts import ResolveConflicts as ResolveConflicts
from shardir.passes.resharding.share_reshards import ShareReshards as ShareReshards
from shardir.passes.resharding.sink_reductions import SinkReductions as SinkReductions
from shardir.passes.resharding.sink_reshards import SinkReshards as SinkReshards
from shardir.passes.simplify.annotate_partial_sorts import (
    AnnotatePartialSorts as AnnotatePartialSorts,
)
from shardir.passes.simplify.cse import (
    CommonSubexpressionElimination as CommonSubexpressionElimination,
)
from shardir.passes.simplify.dce import DeadCodeElimination as DeadCodeElimination
from shardir.passes.simplify.fill_out_of_bounds import FillOutOfBounds as FillOutOfBounds
from shardir.passes.simplify.fold_diagonals import FoldDiagonals as FoldDiagonals
from shardir.passes.simplify.fold_reductions import FoldReductions as FoldReductions
from shardir.passes.simplify.fold_transposes import FoldTransposes as FoldTransposes
from shardir.passes.simplify.fold_views import FoldViews as FoldViews
from shardir.passes.simplify.inline import Inline as Inline
from shardir.passes.simplify.inline_calls import InlineCalls as InlineCalls
from shardir.passes.simplify.simplify import Simplify as Simplify
from shardir.passes.simplify.widen_small_dtypes import WidenSmallDtypes as WidenSmallDtypes
from shardir.passes.whole_program.merge_devices import MergeDevices as MergeDevices
