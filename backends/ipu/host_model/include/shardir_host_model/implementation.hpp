// All definitions, for the one object that programs declared with SHARDIR_HOST_MODEL_SEPARATE are
// linked to: a source file with nothing but this include.
#pragma once

#define SHARDIR_HOST_MODEL_SEPARATE
#define SHARDIR_HOST_MODEL_IMPLEMENTATION

#include <shardir_host_model/declarations.hpp>

#include <shardir_host_model/collectives.hpp>
#include <shardir_host_model/engines.hpp>
#include <shardir_host_model/expressions.hpp>
#include <shardir_host_model/filling.hpp>
#include <shardir_host_model/gathering.hpp>
#include <shardir_host_model/graphs.hpp>
#include <shardir_host_model/loops.hpp>
#include <shardir_host_model/maps.hpp>
#include <shardir_host_model/products.hpp>
#include <shardir_host_model/programs.hpp>
#include <shardir_host_model/reductions.hpp>
#include <shardir_host_model/slicing.hpp>
#include <shardir_host_model/sorting.hpp>
#include <shardir_host_model/tensors.hpp>
